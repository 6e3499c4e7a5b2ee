"""What bounds a model's batches."""

from __future__ import annotations

import pytest

from treadle.schedule import Entry
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.padding import PaddingConfig
from treadle.serve.profiles import KnownLatency


def test_batches_are_smaller_once_memory_ran_out_and_grow_again_step_by_step() -> None:
    model = ServedModel(ModelConfig(name="m", factory="module:callable", max_batch=32))
    assert model.most_rows == 32
    model.memory_ran_out(8, 100.0)
    model.try_more(110.0)
    assert model.most_rows == 8
    model.try_more(130.0)
    assert model.most_rows == 16
    model.try_more(140.0)
    assert model.most_rows == 16
    model.memory_ran_out(4, 150.0)
    for now in (180.0, 210.0, 240.0):
        model.try_more(now)
    assert model.most_rows == 32
    assert model.bounds == {}


def test_the_first_batches_are_sized_by_what_was_measured_before() -> None:
    config = ModelConfig(name="m", factory="module:callable", max_batch=32, p99_seconds=0.1)
    model = ServedModel(config)
    rule = model.batch_rule(by_objective=True)
    head = Entry(model="m", batch_key=None, arrived=0.0, due=0.1)
    model.know(KnownLatency(seconds={rows: 0.01 * rows for rows in (1, 2, 4, 8, 16, 32)}))
    assert 4 <= rule.choose(head, 100, 0.0).max_rows <= 10
    model.know(KnownLatency(seconds={rows: 0.001 * rows for rows in (1, 2, 4, 8, 16, 32)}))
    assert rule.choose(head, 100, 0.0).max_rows == 32


def test_run_times_are_learned_for_each_length() -> None:
    padding = PaddingConfig(lengths=(64, 512), inputs={"x": 1})
    model = ServedModel(
        ModelConfig(name="m", factory="a:b", max_batch=8, p99_seconds=10.0, padding=padding)
    )
    assert model.longest_run(8, 0.0) is None
    model.latencies[64].observe(1, 0.5, 0.0)
    assert model.longest_run(8, 0.0) == 0.5
    model.latencies[512].observe(1, 4.0, 0.0)
    assert model.longest_run(8, 0.0) == 4.0
    rule = model.batch_rule(by_objective=True)
    for bucket, rows in ((64, 8), (512, 2)):
        head = Entry(model="m", batch_key=bucket, bucket=bucket, arrived=0.0, due=10.0)
        assert rule.choose(head, 8, 0.0).max_rows == rows


@pytest.mark.parametrize("p99_seconds", [None, 0.5])
def test_with_an_objective_or_without_batches_stay_within_the_bound(
    p99_seconds: float | None,
) -> None:
    config = ModelConfig(name="m", factory="module:callable", max_batch=32, p99_seconds=p99_seconds)
    model = ServedModel(config)
    rule = model.batch_rule(by_objective=True)
    head = Entry(model="m", batch_key=None, arrived=0.0, due=0.5)
    assert rule.choose(head, 100, 0.0).max_rows == 32
    model.memory_ran_out(8, 0.0)
    assert rule.choose(head, 100, 0.0).max_rows == 8
