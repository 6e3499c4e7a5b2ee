"""What serving tells Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from treadle.clock import ManualClock
from treadle.serve.metrics import BusyShare, ServeMetrics
from treadle.types import Priority

CRITICAL, NORMAL = Priority.CRITICAL, Priority.NORMAL


class Waiting:
    def depths(self) -> Mapping[tuple[str, Priority], int]:
        return {("m", CRITICAL): 3, ("m", NORMAL): 0}


class Scraped:
    """Metrics behind a registry, as a scrape sees them."""

    def __init__(self) -> None:
        self.clock, self.registry = ManualClock(100.0), CollectorRegistry()
        self.metrics = ServeMetrics([Waiting()], self.clock.now)
        self.registry.register(self.metrics)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_an_answered_request_is_counted_and_timed(scraped: Scraped) -> None:
    scraped.metrics.answered("m", CRITICAL, 0.001, 0.04, 0.05)
    scraped.metrics.answered("m", CRITICAL, 0.003, 0.04, 0.05)
    labels = {"model": "m", "priority": "critical"}
    assert scraped.value("treadle_requests_total", outcome="ok", **labels) == 2
    for name, total in (("request_queue", 0.004), ("request_compute", 0.08), ("request", 0.1)):
        assert scraped.value(f"treadle_{name}_seconds_count", **labels) == 2
        assert scraped.value(f"treadle_{name}_seconds_sum", **labels) == pytest.approx(total)
    # Buckets are cumulative, and a bound belongs to its bucket.
    for bound, count in (("0.0005", 0), ("0.001", 1), ("0.002", 1), ("0.005", 2), ("+Inf", 2)):
        name = "treadle_request_queue_seconds_bucket"
        assert scraped.value(name, le=bound, **labels) == count


def test_a_time_above_all_bounds_is_counted_too(scraped: Scraped) -> None:
    scraped.metrics.answered("m", NORMAL, 0.0, 1000.0, 1000.0)
    labels = {"model": "m", "priority": "normal"}
    assert scraped.value("treadle_request_seconds_bucket", le="30.0", **labels) == 0
    assert scraped.value("treadle_request_seconds_bucket", le="+Inf", **labels) == 1


def test_requests_that_end_otherwise_are_counted_by_how(scraped: Scraped) -> None:
    for outcome in ("refused", "refused", "expired"):
        scraped.metrics.ended("m", NORMAL, outcome)
    labels = {"model": "m", "priority": "normal"}
    assert scraped.value("treadle_requests_total", outcome="refused", **labels) == 2
    assert scraped.value("treadle_requests_total", outcome="expired", **labels) == 1
    assert scraped.value("treadle_requests_total", outcome="ok", **labels) is None


def test_parts_are_counted_and_the_first_is_timed(scraped: Scraped) -> None:
    labels = {"model": "m", "priority": "normal"}
    assert scraped.value("treadle_parts_total", **labels) is None
    scraped.metrics.first_part("m", NORMAL, 0.04)
    for _ in range(3):
        scraped.metrics.part("m", NORMAL)
    assert scraped.value("treadle_parts_total", **labels) == 3
    assert scraped.value("treadle_first_part_seconds_count", **labels) == 1
    assert scraped.value("treadle_first_part_seconds_sum", **labels) == pytest.approx(0.04)


def test_the_depth_of_the_queue_is_what_the_queue_says(scraped: Scraped) -> None:
    assert scraped.value("treadle_queue_depth", model="m", priority="critical") == 3
    assert scraped.value("treadle_queue_depth", model="m", priority="normal") == 0


def test_batches_count_their_rows_and_the_device_time_they_held(scraped: Scraped) -> None:
    scraped.metrics.batch("m", "cpu", 3, 90.0, 94.0, 0.5)
    scraped.metrics.batch("m", "cpu", 4, 94.0, 95.0, 0.5)
    assert scraped.value("treadle_batch_rows_sum", model="m") == 7
    assert scraped.value("treadle_batch_rows_bucket", model="m", le="2.0") == 0
    assert scraped.value("treadle_batch_rows_bucket", model="m", le="4.0") == 2
    assert scraped.value("treadle_device_held_seconds_total", model="m") == pytest.approx(2.5)
    assert scraped.value("treadle_device_busy_share", device="cpu") == pytest.approx(0.25)
    scraped.clock.advance(100)
    assert scraped.value("treadle_device_busy_share", device="cpu") == 0


def test_all_of_it_can_be_written_as_text(scraped: Scraped) -> None:
    scraped.metrics.answered('quo"te', CRITICAL, 0.0, 0.0, 0.0)
    scraped.metrics.batch('quo"te', "cpu", 1, 0.0, 1.0, 1.0)
    text = generate_latest(scraped.registry).decode()
    assert 'treadle_requests_total{model="quo\\"te",outcome="ok",priority="critical"} 1.0' in text


# (start, end, share) of batches in the order in which they end, now -> mean of the last 10 s
HELD = [
    ([], 100.0, 0.0),
    ([(90.0, 100.0, 1.0)], 100.0, 1.0),
    ([(90.0, 100.0, 0.5)], 100.0, 0.5),
    ([(95.0, 100.0, 1.0)], 100.0, 0.5),
    ([(80.0, 100.0, 1.0)], 100.0, 1.0),
    ([(80.0, 95.0, 1.0)], 100.0, 0.5),
    ([(80.0, 85.0, 1.0)], 100.0, 0.0),
    ([(92.25, 92.75, 1.0), (92.75, 93.25, 1.0)], 100.0, 0.1),
    ([(95.0, 100.5, 1.0)], 100.5, 0.5),
    # a short batch that ends beside a long one
    ([(99.0, 99.5, 0.5), (90.0, 100.0, 0.5)], 100.0, 0.525),
    ([(99.0, 99.5, 0.5), (70.0, 100.0, 0.5)], 100.0, 0.525),
    ([(99.0, 99.5, 0.5), (70.0, 100.0, 0.5)], 105.0, 0.275),
    ([(99.0, 100.0, 1.0), (90.0, 100.0, 1.0)], 100.0, 1.1),
]


@pytest.mark.parametrize(("batches", "now", "share"), HELD)
def test_busy_share(batches: list[tuple[float, float, float]], now: float, share: float) -> None:
    busy = BusyShare()
    for batch in batches:
        busy.add(*batch)
    assert busy.value(now) == pytest.approx(share)


def test_busy_share_over_a_long_time() -> None:
    busy = BusyShare()
    for second in range(200):
        busy.add(second, second + 1, 0.5)
        assert busy.value(second + 1) == pytest.approx(0.05 * min(second + 1, 10))
