"""Models whose inputs are padded: checked when they load, and warmed up at each length."""

from __future__ import annotations

import logging

import pytest

from treadle.serve.padding import PaddingConfig
from treadle.serve.worker.messages import (
    Load,
    Loaded,
    ModelSetup,
    PlainSpec,
    decode_to_worker,
    encode_load,
)

from .hosting import LocalHost, model

ROWS: PlainSpec = ("x", "FP32", (-1, -1, 2))
LENGTHS: PlainSpec = ("lengths", "INT64", (-1,))


def padded(factory: str = "worker_models:echoes", axis: int = 1) -> ModelSetup:
    padding = PaddingConfig(
        lengths=(4, 8), inputs={"x": axis}, fill={"x": 0.5}, length_input="lengths"
    )
    return model(
        factory,
        inputs=(ROWS, LENGTHS),
        outputs=(("y", "FP32", (-1, -1, 2)),),
        max_batch=4,
        warm_up=(1, 4),
        padding=padding,
    )


def test_padding_that_does_not_fit_keeps_a_model_from_loading(host: LocalHost) -> None:
    assert host.refusal(padded(axis=2)) == (
        "padding.inputs: x = 2: its shape is [-1, -1, 2]; allowed: an axis that is -1 there"
    )


def test_every_length_is_run_at_every_size_before_requests_come(
    host: LocalHost, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "treadle.worker"):
        answer = host.load(padded("worker_models:tells_its_lengths"))
    assert isinstance(answer, Loaded)
    assert [record.getMessage() for record in caplog.records] == [
        "m: no warm-up with 1 rows of length 4: (1, 4, 2) [4]",
        "m: no warm-up with 1 rows of length 8: (1, 8, 2) [8]",
        "m: no warm-up with 4 rows of length 4: (4, 4, 2) [4, 4, 4, 4]",
        "m: no warm-up with 4 rows of length 8: (4, 8, 2) [8, 8, 8, 8]",
    ]


def test_padding_reaches_the_worker_as_it_is() -> None:
    load = Load((padded(),), nice=0)
    assert decode_to_worker(encode_load(load)) == load
