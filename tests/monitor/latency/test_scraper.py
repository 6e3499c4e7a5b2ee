"""Pages that are followed in the background."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.monitor.latency.pages import PageServer, answering, histogram
from tests.monitor.waiting import DEADLINE_SECONDS

from treadle.monitor.latency import LatencyScraper, Limits, parse_latency_address
from treadle.types import LatencyWindow


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not look():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def growing(writer: asyncio.StreamWriter) -> None:
    """Ten more requests at every look, one of them late."""
    growing.looks += 1  # type: ignore[attr-defined]
    n = growing.looks  # type: ignore[attr-defined]
    await answering(histogram({"0.1": 9 * n, "+Inf": 10 * n}))(writer)


growing.looks = 0  # type: ignore[attr-defined]


async def test_a_task_is_followed_until_it_is_forgotten() -> None:
    async with PageServer(growing) as server:
        with LatencyScraper(limits=Limits(timeout_seconds=DEADLINE_SECONDS)) as scraper:
            address = parse_latency_address(f"{server.url} request_seconds")
            scraper.follow("server", address, 0.1, scrape_seconds=0.01)
            await until(lambda: scraper.latest("server").count == 10)
            assert scraper.latest("server").over == (1, 1)
            scraper.forget("server")
            assert "no latency address" in scraper.latest("server").reason


async def test_a_server_that_comes_back_is_read_again() -> None:
    async with PageServer(answering("", status="503 Busy")) as server:
        with LatencyScraper(limits=Limits(timeout_seconds=DEADLINE_SECONDS)) as scraper:
            address = parse_latency_address(f"{server.url} request_seconds")
            scraper.follow("server", address, 0.1, scrape_seconds=0.01)
            await until(lambda: "503" in scraper.latest("server").reason)
            server.answer = growing
            await until(lambda: scraper.latest("server").count == 10)


async def test_a_server_that_stalls_holds_up_no_other() -> None:
    async def stall(writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with PageServer(stall) as stalled, PageServer(growing) as well:
        with LatencyScraper(limits=Limits(timeout_seconds=DEADLINE_SECONDS)) as scraper:
            for name, server in (("stalled", stalled), ("well", well)):
                address = parse_latency_address(f"{server.url} request_seconds")
                scraper.follow(name, address, 0.1, scrape_seconds=0.01)
            await until(lambda: scraper.latest("well").count == 10)
            assert scraper.latest("stalled").reason == "not read yet"


async def test_following_anew_replaces_what_was_followed() -> None:
    async with PageServer(growing) as server:
        with LatencyScraper(limits=Limits(timeout_seconds=DEADLINE_SECONDS)) as scraper:
            address = parse_latency_address(f"{server.url} request_seconds")
            scraper.follow("server", address, 0.1, scrape_seconds=0.01)
            await until(lambda: scraper.latest("server").count == 10)
            scraper.follow("server", address, 0.2, scrape_seconds=0.01)
            windows: list[LatencyWindow] = []

            def look() -> bool:
                windows.append(scraper.latest("server"))
                return windows[-1].count == 10

            await until(look)
            assert windows[-1].over == (0, 1)  # above the last bound nothing is told apart


def test_a_scraper_that_is_closed_twice_is_closed() -> None:
    scraper = LatencyScraper()
    scraper.close()
    scraper.close()


def test_a_page_is_read_every_so_many_seconds() -> None:
    with LatencyScraper() as scraper, pytest.raises(ValueError, match="not 0"):
        scraper.follow("a", parse_latency_address("http://h/m a_seconds"), 1.0, scrape_seconds=0)
