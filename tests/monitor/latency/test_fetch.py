"""Servers that stall, lie, flood or change."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from tests.monitor.latency.pages import Answer, PageServer, answering, histogram

from treadle.monitor.latency import Limits, parse_latency_address
from treadle.monitor.latency.fetch import fetch, open_session
from treadle.monitor.latency.figures import Scrape
from treadle.monitor.latency.lines import LinePicker, PageError

PATIENT = 30.0
PAGE = histogram({"0.1": 5, "+Inf": 9})


async def fetched(
    answer: Answer, *, seconds: float = PATIENT, text: str = "request_seconds", **limits: int
) -> Scrape:
    async with PageServer(answer) as server:
        bounds = Limits(timeout_seconds=seconds, **limits)
        async with open_session(bounds) as session:
            return await fetch(session, parse_latency_address(f"{server.url} {text}"), bounds)


async def stall(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def stall_after_the_head(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nrequest_seconds")
    await asyncio.Event().wait()


async def drip(writer: asyncio.StreamWriter) -> None:
    """A byte now and then: never silent for long, never done."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\n#\r\n")
        await writer.drain()
        await asyncio.sleep(0.005)


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"# nothing here\n" * 4369 + b"\n\r\n")
        await writer.drain()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def cut_short(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nrequest_seconds_count 1\n")
    await writer.drain()
    writer.close()


async def no_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 smtp.example.com\r\n\r\n")
    await writer.drain()


async def test_a_page_is_read() -> None:
    found = await fetched(answering("# HELP a b\n" + "other 1\n" * 5000 + PAGE))
    assert list(found.buckets.values()) == [{0.1: 5.0, float("inf"): 9.0}]


@pytest.mark.parametrize("answer", [stall, stall_after_the_head, drip])
async def test_a_server_that_takes_too_long_is_left(answer: Answer) -> None:
    with pytest.raises(PageError, match=r"no whole page within 0\.05 s"):
        await fetched(answer, seconds=0.05)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (answering(PAGE, status="503 Busy"), "503, not 200"),
        (answering(PAGE, status="404 Not Found"), "404, not 200"),
        (
            answering("", status="302 Found", headers="Location: http://h/\r\n"),
            r"302, not 200 \(redirects are not",
        ),
        (answering(gzip.compress(PAGE.encode()), headers="Content-Encoding: gzip\r\n"), "gzip"),
        (answering(b"request_seconds_count \xff\xfe\n"), "cannot be read"),
        (answering("<html>request_seconds</html>"), "no metric request_seconds"),
        (hang_up, "no answer"),
        (cut_short, "no answer"),
        (no_http, "no answer"),
    ],
)
async def test_a_wrong_answer_is_a_reason(answer: Answer, why: str) -> None:
    with pytest.raises(PageError, match=why):
        await fetched(answer)


async def test_a_page_without_end_is_left_at_the_limit() -> None:
    with pytest.raises(PageError, match="larger than 1048576 bytes"):
        await fetched(endless, page_bytes=1 << 20)


async def test_a_line_without_end_is_left_at_the_limit() -> None:
    with pytest.raises(PageError, match="longer than 1000 bytes"):
        await fetched(answering("#" * 100_000), line_bytes=1000)


async def test_too_many_series_ask_for_a_label() -> None:
    page = "".join(histogram({"+Inf": 1}, labels=f'model="{n}"') for n in range(50))
    with pytest.raises(PageError, match='model="a"'):
        await fetched(answering(page), lines=100)
    assert len((await fetched(answering(page), lines=150)).buckets) == 50


async def test_nobody_at_the_address_is_a_reason() -> None:
    async with PageServer(answering(PAGE)) as server:
        url = server.url
    limits = Limits(timeout_seconds=PATIENT)
    async with open_session(limits) as session:
        with pytest.raises(PageError, match="no answer"):
            await fetch(session, parse_latency_address(f"{url} request_seconds"), limits)


def test_lines_are_picked_wherever_the_page_is_cut() -> None:
    page = ("other_seconds_sum 1\n" + PAGE + "request_seconds_bucketing 5\n").encode()
    whole = LinePicker(("request_seconds_bucket",), most_lines=10, most_line_bytes=1000)
    whole.feed(page)
    whole.finish()
    assert len(whole.lines) == 2
    for size in range(1, 40):
        cut = LinePicker(("request_seconds_bucket",), most_lines=10, most_line_bytes=1000)
        for start in range(0, len(page), size):
            cut.feed(page[start : start + size])
        cut.finish()
        assert cut.lines == whole.lines


def test_a_last_line_without_an_end_counts() -> None:
    picker = LinePicker(("a_count",), most_lines=10, most_line_bytes=1000)
    picker.feed(b"a_count 1")
    picker.finish()
    assert picker.lines == [b"a_count 1"]


@pytest.mark.parametrize("value", ["a", 'quo"te', "back\\slash", "new\nline", "é{},="])
async def test_labels_narrow_a_page_with_many_series(value: str) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    page = "".join(
        histogram({"+Inf": n}, labels=f'model="{escaped(name)}"')
        for n, name in enumerate([value, *(f"model-{n}" for n in range(50))])
    )
    chosen = f'request_seconds{{model="{escaped(value)}"}}'
    found = await fetched(answering(page), text=chosen, lines=3)
    assert list(found.buckets) == [frozenset({("model", value)})]
