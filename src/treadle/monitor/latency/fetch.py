"""One metrics page over HTTP, within bounds of time and size."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import aiohttp

from treadle.monitor.latency.address import LatencyAddress
from treadle.monitor.latency.figures import Scrape, add_samples, check, read_samples
from treadle.monitor.latency.lines import LinePicker, PageError

_CHUNK_BYTES = 1 << 16
_AT_ONCE = 16
_LARGE_BYTES = 1 << 18
_BREATH_SECONDS = 0.0005
"""Reading holds the interpreter: it is left to others for so long every ``_AT_ONCE`` lines, and at
every chunk of a page that is large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one page."""

    timeout_seconds: float = 1.0
    """From the request to the last byte."""
    page_bytes: int = 8 << 20
    line_bytes: int = 1 << 16
    lines: int = 1024
    """Of the metric that is looked for, with the labels that are."""


def open_session(limits: Limits) -> aiohttp.ClientSession:
    """What pages are fetched through: no cookies, no proxies, no compression."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=limits.timeout_seconds),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"},
    )


async def fetch(session: aiohttp.ClientSession, address: LatencyAddress, limits: Limits) -> Scrape:
    """Read a page, and of it what ``address`` names.

    Raises:
        PageError: If that is not possible; the text says why.
    """
    picker = LinePicker(
        address.names,
        address.labels.values(),
        most_lines=limits.lines,
        most_line_bytes=limits.line_bytes,
    )
    try:
        async with session.get(address.url, allow_redirects=False) as answer:
            await _read(answer, picker, limits)
    except TimeoutError:
        raise PageError(f"no whole page within {limits.timeout_seconds:g} s") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise PageError(f"no answer: {error or type(error).__name__}") from None
    scrape = Scrape()
    for first in range(0, len(picker.lines), _AT_ONCE):
        add_samples(scrape, read_samples(picker.lines[first : first + _AT_ONCE]), address)
        if len(picker.lines) > _AT_ONCE:
            await asyncio.sleep(_BREATH_SECONDS)
    check(scrape, address)
    return scrape


async def _read(answer: aiohttp.ClientResponse, picker: LinePicker, limits: Limits) -> None:
    if answer.status != 200:
        where = " (redirects are not followed)" if 300 <= answer.status < 400 else ""
        raise PageError(f"the answer was {answer.status}, not 200{where}")
    encoding = answer.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise PageError(f"the page is compressed ({encoding[:20]}), which was not asked for")
    size = 0
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        size += len(chunk)
        if size > limits.page_bytes:
            raise PageError(f"the page is larger than {limits.page_bytes} bytes")
        picker.feed(chunk)
        if size > _LARGE_BYTES:
            await asyncio.sleep(_BREATH_SECONDS)
    picker.finish()
