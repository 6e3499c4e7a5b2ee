from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from treadle.bench.mix.web import METRIC, Metrics, Web, bounds
from treadle.monitor.latency import parse_latency_address


class Counted:
    """Requests that were run."""

    def __init__(self) -> None:
        self.runs = 0

    def infer(self) -> None:
        self.runs += 1


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def web(counted: Counted) -> Iterator[Web]:
    web = Web(0, counted.infer, Metrics(0.01))
    yield web
    web.close()


def test_the_objective_is_a_bound_and_so_is_what_is_near_it() -> None:
    assert {0.01, 0.8 * 0.01} <= set(bounds(0.01))
    assert bounds(0.01) == sorted(bounds(0.01))


def test_a_request_is_run_and_counted(web: Web, counted: Counted) -> None:
    base = f"http://127.0.0.1:{web.port}"
    assert httpx.get(f"{base}/health").status_code == 200
    assert httpx.post(f"{base}/infer").json()["seconds"] >= 0
    assert counted.runs == 1
    page = httpx.get(f"{base}/metrics").text
    assert f"{METRIC}_count 1.0" in page
    assert f'{METRIC}_bucket{{le="0.01"}}' in page
    parse_latency_address(f"{base}/metrics {METRIC}")


def test_the_load_begins_when_it_is_told_to(web: Web) -> None:
    base = f"http://127.0.0.1:{web.port}"
    assert httpx.post(f"{base}/start", json={"begin": 1}).status_code == 400
    assert httpx.post(f"{base}/start", content=b"\xff").status_code == 400
    assert not web.started.is_set()
    assert httpx.post(f"{base}/start", json={"zero": 12.5}).json() == {"zero": 12.5}
    assert web.started.is_set()
    assert web.zero == 12.5


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_there_is_nothing_else(web: Web, method: str) -> None:
    assert httpx.request(method, f"http://127.0.0.1:{web.port}/other").status_code == 404
