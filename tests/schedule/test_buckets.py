"""Requests of one model that are padded to several lengths: each has run times of its own."""

from __future__ import annotations

import math

from treadle.schedule import EachBucket, Entry, ObjectiveBatch
from treadle.schedule.batching import Others


def rule(row_seconds: float) -> ObjectiveBatch:
    return ObjectiveBatch(10.0, lambda: 8, lambda rows: rows * row_seconds, lambda: 1.0)


def head(bucket: int, arrived: float = 0.0) -> Entry:
    return Entry(model="m", batch_key=bucket, bucket=bucket, arrived=arrived, due=arrived + 10.0)


def both() -> EachBucket:
    return EachBucket({64: rule(1.0), 512: rule(4.0)})


def test_a_batch_is_as_large_as_its_own_bucket_allows() -> None:
    assert both().choose(head(64), 20, 0.0).max_rows == 8
    assert both().choose(head(512), 20, 0.0).max_rows == 2


def test_one_bucket_leaves_the_device_to_the_other_in_time() -> None:
    """A long one comes every 5 s. Two of them take 8 s of 10: a short batch has 2."""
    rules = both()
    for number in range(11):
        rules.arrived(head(512, number * 5.0))
    assert rules.latest_start(None, 0, 50.0) == 52.0
    assert rules.choose(head(64, 50.0), 20, 50.0).max_rows == 2
    assert rules.choose(head(64, 50.0), 20, 50.0, Others(free_by=51.0)).max_rows == 1
    assert rules.choose(head(512, 50.0), 20, 50.0).max_rows == 2


def test_the_load_is_that_of_all_buckets() -> None:
    rules = both()
    assert rules.load(0.0) == 0.0
    for number in range(11):
        rules.arrived(head(64, number / 10))
    short = rules.load(1.0)
    for number in range(11):
        rules.arrived(head(512, number / 10))
    assert rules.load(1.0) > short > 0


def test_while_nothing_comes_nothing_has_to_start() -> None:
    assert both().latest_start(None, 0, 0.0) == math.inf
    assert both().latest_start(head(512), 1, 0.0) == 6.0
