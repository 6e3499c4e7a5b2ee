"""Metrics pages as servers have them, and a server that answers as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from treadle.monitor.latency.address import LatencyAddress
from treadle.monitor.latency.figures import Scrape, add_samples, check, read_samples

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


def histogram(
    buckets: Mapping[str, float], name: str = "request_seconds", labels: str = "", total: float = 0
) -> str:
    """A histogram's lines; ``buckets`` are cumulative, by upper bound."""
    comma = "," if labels else ""
    lines = [f'{name}_bucket{{{labels}{comma}le="{le}"}} {n}' for le, n in buckets.items()]
    lines.append(f"{name}_sum{{{labels}}} {total}")
    lines.append(f"{name}_count{{{labels}}} {list(buckets.values())[-1]}")
    return f"# TYPE {name} histogram\n" + "\n".join(lines) + "\n"


def scrape(page: str, address: LatencyAddress) -> Scrape:
    """What is read of a page."""
    found = Scrape()
    lines = [line.encode() for line in page.splitlines()]
    add_samples(found, read_samples(lines), address)
    check(found, address)
    return found


def answering(body: str | bytes, *, status: str = "200 OK", headers: str = "") -> Answer:
    """An answer in one piece."""
    data = body.encode() if isinstance(body, str) else body

    async def answer(writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(data)}\r\n{headers}\r\n"
        writer.write(head.encode() + data)
        await writer.drain()

    return answer


class PageServer:
    """Answers every request with whatever ``answer`` is at that time."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._talks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> PageServer:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._server is not None
        self._server.close()
        for talk in self._talks:
            talk.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/metrics"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = asyncio.current_task()
        assert talk is not None
        self._talks.add(talk)
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self.answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._talks.discard(talk)
            writer.close()
