from __future__ import annotations

import pytest

from treadle.bench.calibrate import clients_for, parse_mix
from treadle.bench.traffic import ModelTraffic
from treadle.errors import ConfigError


def models_with(*max_batches: int) -> list[ModelTraffic]:
    return [
        ModelTraffic(name=str(n), priority="normal", p99_seconds=None, max_batch=size, requests=())
        for n, size in enumerate(max_batches)
    ]


def test_every_model_has_the_same_part_unless_told_otherwise() -> None:
    assert parse_mix([], ["a", "b"]) == {"a": 1.0, "b": 1.0}
    assert parse_mix(["b=2.5"], ["a", "b"]) == {"a": 1.0, "b": 2.5}


@pytest.mark.parametrize("text", ["c=1", "a", "a=", "a=much", "a=-1", "a=inf", "a=nan", "=1"])
def test_a_wrong_part_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--mix .*; allowed: "):
        parse_mix([text], ["a", "b"])


def test_one_model_must_be_left() -> None:
    assert parse_mix(["a=0"], ["a", "b"]) == {"a": 0.0, "b": 1.0}
    with pytest.raises(ConfigError, match="every part is 0"):
        parse_mix(["a=0", "b=0"], ["a", "b"])


@pytest.mark.parametrize(
    ("max_batches", "clients"), [((1,), 8), ((8, 8, 1), 34), ((32,), 64), ((64, 64), 64)]
)
def test_clients_fill_batches_but_no_queue(max_batches: tuple[int, ...], clients: int) -> None:
    assert clients_for(models_with(*max_batches)) == clients
