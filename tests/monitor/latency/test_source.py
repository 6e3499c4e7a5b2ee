"""From two scrapes: how many requests, how many of them late, and how exactly that is known."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from tests.monitor.latency.pages import histogram, scrape

from treadle.monitor.latency import LatencySource, parse_latency_address
from treadle.monitor.latency.difference import beyond, quantile
from treadle.monitor.latency.lines import PageError
from treadle.types import LatencyKind, LatencyWindow

ADDRESS = parse_latency_address("http://h/m request_seconds")
TRITON = parse_latency_address("http://h/m nv_inference_request_duration_us")


def read(*pages: str, objective: float = 0.1, text: str = "request_seconds") -> LatencyWindow:
    """The window after the last of these pages, read a second apart."""
    address = parse_latency_address(f"http://h/m {text}")
    source = LatencySource(address, objective)
    for second, page in enumerate(pages):
        source.scraped(scrape(page, address), 50.0 + second)
    return source.latest(50.0 + len(pages))


def test_the_first_page_alone_says_nothing_of_late() -> None:
    window = read(histogram({"0.1": 5, "+Inf": 9}))
    assert window.count is None
    assert "second reading" in window.reason


def test_a_histogram_counts_what_came_between_two_pages() -> None:
    window = read(
        histogram({"0.05": 100, "0.1": 200, "0.2": 210, "+Inf": 210}, total=9.0),
        histogram({"0.05": 150, "0.1": 290, "0.2": 308, "+Inf": 310}, total=15.0),
    )
    assert (window.kind, window.count, window.over) == (LatencyKind.HISTOGRAM, 100, (10, 10))
    assert (window.at, window.window_seconds) == (51.0, 1.0)
    assert window.mean_seconds == pytest.approx(0.06)


def test_a_bucket_hides_on_which_side_of_the_objective_requests_were() -> None:
    pages = (
        histogram({"0.05": 0, "0.2": 0, "+Inf": 0}),
        histogram({"0.05": 6, "0.2": 9, "+Inf": 10}),
    )
    window = read(*pages, objective=0.1)
    assert window.over == (1, 4)
    assert window.near == (1, 4)


def test_a_quantile_is_straight_within_its_bucket_and_unknown_above_the_last() -> None:
    buckets = {0.1: 0.0, 0.2: 100.0, float("inf"): 100.0}
    assert quantile(buckets, 0.99) == pytest.approx(0.199)
    assert quantile({0.1: 98.0, float("inf"): 100.0}, 0.99) is None
    assert quantile({0.1: 0.0, float("inf"): 0.0}, 0.99) is None


def test_a_p99_above_the_largest_bucket_says_so() -> None:
    window = read(histogram({"0.1": 0, "+Inf": 0}), histogram({"0.1": 1, "+Inf": 100}))
    assert window.p99_seconds is None
    assert "largest bucket" in window.reason
    assert window.over == (99, 99)


def test_units_are_those_of_the_name() -> None:
    pages = [histogram({"50": n, "+Inf": 2 * n}, name="wait_ms", total=80 * n) for n in (0, 10)]
    window = read(*pages, objective=0.05, text="wait_ms")
    assert window.over == (10, 10)
    assert window.mean_seconds == pytest.approx(0.04)


@pytest.mark.parametrize("unit", [1e-3, 1e-6, 1e-9])
def test_a_bound_at_the_objective_is_the_objective_in_every_unit(unit: float) -> None:
    for thousandths in range(1, 200):
        bound = thousandths * 1e-3 / unit
        bounds = {bound: 7.0, 2 * bound: 9.0, float("inf"): 10.0}
        assert beyond(bounds, thousandths / 1000 / unit) == (3, 3)


def test_a_server_that_started_anew_is_counted_from_there() -> None:
    old, new = {"0.1": 100, "+Inf": 110}, {"0.1": 5, "+Inf": 5}
    window = read(histogram(old), histogram(new))
    assert (window.count, "started anew" in window.reason) == (None, True)
    window = read(histogram(old), histogram(new), histogram({"0.1": 7, "+Inf": 8}))
    assert (window.count, window.over) == (3, (1, 1))


def test_a_series_that_goes_is_a_new_start_and_one_that_comes_counts_whole() -> None:
    one = histogram({"0.1": 5, "+Inf": 5}, labels='model="a"')
    two = one + histogram({"0.1": 2, "+Inf": 4}, labels='model="b"')
    assert read(one, two).count == 4
    assert "started anew" in read(two, one).reason


def test_labels_choose_among_series() -> None:
    def page(n: int) -> str:
        return histogram({"0.1": n, "+Inf": n}, labels='model="a"') + histogram(
            {"0.1": 0, "+Inf": 10 * n}, labels='model="b"'
        )

    assert read(page(0), page(1), text='request_seconds{model="b"}').over == (10, 10)
    assert read(page(0), page(1)).count == 11


def test_a_failed_reading_between_two_loses_no_request() -> None:
    source = LatencySource(ADDRESS, 0.1)
    source.scraped(scrape(histogram({"0.1": 1, "+Inf": 1}), ADDRESS), 10.0)
    assert source.missing("no answer", 11.0).count is None
    window = source.scraped(scrape(histogram({"0.1": 5, "+Inf": 7}), ADDRESS), 12.0)
    assert (window.count, window.window_seconds) == (6, 2.0)


def summary(quantile: str, count: int, total: float = 0) -> str:
    return (
        f'request_seconds{{quantile="0.5"}} 0.01\nrequest_seconds{{quantile="0.99"}} {quantile}\n'
        f"request_seconds_sum {total}\nrequest_seconds_count {count}\n"
    )


def test_a_summary_has_a_p99_of_its_own_and_counts_nothing_late() -> None:
    window = read(summary("0.25", 10), summary("0.3", 30))
    assert (window.kind, window.count, window.p99_seconds) == (LatencyKind.SUMMARY, 20, 0.3)
    assert window.over is None
    assert window.reason


def test_a_summary_that_has_none_now_leaves_a_mean() -> None:
    window = read(summary("0.25", 10, 1), summary("NaN", 30, 2))
    assert (window.kind, window.p99_seconds) == (LatencyKind.MEAN, None)


def test_a_pair_of_counters_gives_a_mean_only_and_says_so() -> None:
    source = LatencySource(TRITON, 0.1)
    for second, count in enumerate((10, 30)):
        page = (
            f'nv_inference_request_duration_us{{model="a"}} {count * 2000}\n'
            f'nv_inference_request_success{{model="a"}} {count}\n'
        )
        window = source.scraped(scrape(page, TRITON), float(second))
    assert (window.kind, window.count, window.over) == (LatencyKind.MEAN, 20, None)
    assert window.mean_seconds == pytest.approx(0.002)
    assert "only a mean" in window.reason


@pytest.mark.parametrize(
    ("page", "why"),
    [
        ("other_seconds_count 1\n", "no metric request_seconds on the page"),
        ("", "no metric request_seconds on the page"),
        ("request_seconds 3\n", "neither a histogram nor a summary"),
        (histogram({"0.1": 5, "0.2": 4, "+Inf": 6}), "buckets fall"),
        (histogram({"0.1": 5, "0.2": 6}), r"no bucket \+Inf"),
        (histogram({"0.1": -5, "+Inf": 6}), "negative"),
        (histogram({"0.1": float("nan"), "+Inf": 6}), "is nan"),
        (histogram({"0.1": float("inf"), "+Inf": 6}), "is inf"),
        (histogram({"zero": 5, "+Inf": 6}), "no number: 'zero'"),
        (histogram({"NaN": 5, "+Inf": 6}), "no number"),
        ("request_seconds_bucket{le=\n", "cannot be read"),
        ("request_seconds_count one\n", "cannot be read"),
        ("request_seconds_count\n", "cannot be read"),
        (
            histogram({"0.1": 1, "+Inf": 1}, labels='a="1"')
            + histogram({"0.2": 1, "+Inf": 1}, labels='a="2"'),
            "different buckets",
        ),
    ],
)
def test_a_page_that_makes_no_sense_is_a_reason(page: str, why: str) -> None:
    with pytest.raises(PageError, match=why):
        scrape(page, ADDRESS)


def still(seconds: int, launches: list[int | None]) -> LatencyWindow:
    """The window after a page that never changes, with what the task has launched by then."""
    source = LatencySource(ADDRESS, 0.1)
    for second in range(seconds):
        source.scraped(scrape(histogram({"0.1": 5, "+Inf": 5}), ADDRESS), float(second))
        window = source.latest(float(second), launches[min(second, len(launches) - 1)])
    return window


def test_a_metric_that_stands_still_while_the_task_launches_tells_nothing() -> None:
    window = still(20, list(range(20)))
    assert window.count is None
    assert "has not changed for" in window.reason


@pytest.mark.parametrize("launches", [[7], [None]])
def test_a_metric_that_stands_still_with_the_task_is_idle(launches: list[int | None]) -> None:
    assert still(20, launches).count == 0


def test_a_page_that_was_never_read_says_so() -> None:
    assert LatencySource(ADDRESS, 0.1).latest(1.0).reason == "not read yet"


def test_what_the_usual_client_library_writes_is_read() -> None:
    """As vLLM does: its metrics are this library's."""
    registry = CollectorRegistry()
    name = "vllm:e2e_request_latency_seconds"
    metric = Histogram(name, "of requests", ["model_name"], registry=registry, buckets=(0.1, 0.5))
    pages = []
    for latencies in ([0.05], [0.05, 0.2, 0.7]):
        for latency in latencies:
            metric.labels('a "b"').observe(latency)
        pages.append(generate_latest(registry).decode())
    window = read(*pages, objective=0.5, text=name + '{model_name="a \\"b\\""}')
    assert (window.count, window.over) == (3, (1, 1))
    assert window.mean_seconds == pytest.approx(0.95 / 3)
