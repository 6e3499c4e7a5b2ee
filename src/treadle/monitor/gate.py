"""The 10 ms tier: what the turnstiles' own counters say. Nothing here can block.

Only the words that are needed are read, each on its own: words of one page may disagree a little.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from treadle.monitor.directory import GATE, Series
from treadle.turnstile import TurnstileError
from treadle.turnstile.folder import open_page, page_file
from treadle.turnstile.page import PAGE_BYTES, RECORD_BYTES, RECORDS, Page, Record, why_unusable

METRICS = (
    "gate_busy",
    "gate_launches",
    "gate_work",
    "gate_waited",
    "gate_memory",
    "gate_members",
)
IDLE_NS = 100_000_000
"""A page where nobody sits is written down so often; where nobody sits at any, so often all are
looked at."""
_MARKS, _MEMBERS = Page.marks.offset // 8, Page.members.offset // 8
_FIRST = Page.record.offset
_FIELDS = (
    Record.generation,
    Record.launches,
    Record.predicted_ns,
    Record.waited_ns,
    Record.budget_waited_ns,
    Record.memory_used_bytes,
    Record.marked_ns,
)
"""What is read of a seat, in the order in which it lies there."""
_MEMORY = _FIELDS.index(Record.memory_used_bytes)


def _layout() -> struct.Struct:
    """Takes a seat's fields off a page in one call; as the machine's own, each in one piece."""
    text, end = "@", 0
    for field in _FIELDS:
        text += f"{field.offset - end}x{'Q' if field.size == 8 else 'I'}"
        end = field.offset + field.size
    return struct.Struct(text)


_fields_of = _layout().unpack_from


class GateFigures(NamedTuple):
    """One tick of a page. Counters run since it was opened here and never go back."""

    busy: float
    launches: int
    work_seconds: float
    waited_seconds: float
    memory_bytes: int
    members: int


class _Sat:
    """What was last seen of one seat."""

    __slots__ = ("credited", "fields", "marked_since")

    def __init__(self, fields: tuple[int, ...], credited_ns: int) -> None:
        self.fields = fields
        self.credited = credited_ns
        self.marked_since: int | None = None


class GatePage:
    """One page, looked at again and again."""

    def __init__(self, path: Path) -> None:
        """Map a page.

        Raises:
            TurnstileError: If it is not there, or not a page of this version.
        """
        try:
            with os.fdopen(open_page(path, os.O_RDONLY), "rb") as file:
                about = os.fstat(file.fileno())
                if about.st_size < PAGE_BYTES:
                    raise TurnstileError(f"the turnstile {path} is too short")
                self._memory = mmap.mmap(file.fileno(), PAGE_BYTES, prot=mmap.PROT_READ)
        except FileNotFoundError:
            raise TurnstileError("no program has used it under treadle run yet") from None
        except OSError as error:
            raise TurnstileError(f"cannot open the turnstile {path}: {error.strerror}") from error
        if reason := why_unusable(Page.from_buffer_copy(self._memory)):
            self._memory.close()
            raise TurnstileError(f"cannot use the turnstile {path}: {reason}")
        self.inode = about.st_ino
        self._words = memoryview(self._memory).cast("Q")
        self._seen: list[_Sat | None] = [None] * RECORDS
        self._launches = self._work = self._waited = 0
        self._last_ns: int | None = None
        self.dead = 0
        """Records whose process is known to have died, as bits."""

    def go_on_from(self, before: GatePage) -> None:
        """Count on where the page that this one replaces has stopped."""
        self._launches += before._launches
        self._work += before._work
        self._waited += before._waited

    @property
    def seats(self) -> int:
        """The records that are taken, by the living or the dead, as bits."""
        words = self._words
        return words[_MEMBERS] | words[_MEMBERS + 1] | words[_MEMBERS + 2]

    @property
    def empty(self) -> bool:
        """Whether nobody sits there."""
        return not self.seats

    def read(self, now_ns: int) -> GateFigures:
        """Read it now. ``busy`` is over the time since the last read; the first time it is 0."""
        words, seen, last_ns = self._words, self._seen, self._last_ns
        self._last_ns = now_ns
        window = 0 if last_ns is None else now_ns - last_ns
        # Critical and normal marks make a GPU busy for others.
        urgent = words[_MARKS] | words[_MARKS + 1]
        left = self.seats & ~self.dead
        busy_ns = memory = members = 0
        while left:
            bit = left & -left
            left ^= bit
            index = bit.bit_length() - 1
            fields = _fields_of(self._memory, _FIRST + index * RECORD_BYTES)
            members += 1
            memory += fields[_MEMORY]
            sat, marked = seen[index], urgent & bit
            # Where nothing has changed and no mark's time runs, there is nothing to add.
            if marked or sat is None or sat.marked_since is not None or sat.fields != fields:
                marked_ns = self._follow(index, fields, bool(marked), now_ns, last_ns is None)
                busy_ns += min(marked_ns, window)
        busy = min(1.0, busy_ns / window) if window else 0.0
        return GateFigures(
            busy, self._launches, self._work / 1e9, self._waited / 1e9, memory, members
        )

    def _follow(
        self, index: int, fields: tuple[int, ...], marked: bool, now_ns: int, first: bool
    ) -> int:
        """Add what a seat did since it was last seen; how long it has been marked since."""
        generation, launches, work, waited, budget_waited, _, total = fields
        sat = self._seen[index]
        if sat is None or sat.fields[0] != generation:
            # What came before this was opened is not counted.
            before = fields if first else (generation, 0, 0, 0, 0, 0, 0)
            sat = self._seen[index] = _Sat(before, total if first else 0)
        _, had_launched, had_worked, had_waited, had_budget_waited, _, had_total = sat.fields
        sat.fields = fields
        self._launches += max(0, launches - had_launched)
        self._work += max(0, work - had_worked)
        self._waited += max(0, waited + budget_waited - had_waited - had_budget_waited)
        # A mark's time is on the page only once it is taken away: until then, since it was seen.
        # Where that time has grown, this is another mark than the one that was seen before.
        if not marked:
            sat.marked_since = None
        elif sat.marked_since is None or total != had_total:
            sat.marked_since = now_ns
        else:
            total += now_ns - sat.marked_since
        credit = max(0, total - sat.credited)
        sat.credited = max(sat.credited, total)
        return credit

    def close(self) -> None:
        self._words.release()
        self._memory.close()


class Sink(Protocol):
    """Takes what is read; a ``ring.Writer``, for one."""

    def write(
        self, series: int, at: float, value: float | None, window: float, reason: str = ""
    ) -> None: ...

    def write_together(
        self, series: Sequence[int], at: float, values: Sequence[float], window: float
    ) -> None: ...

    def tick(self) -> None: ...


class _Watched:
    """A page that is open, and where its figures go."""

    __slots__ = ("last_ns", "page", "series")

    def __init__(self, page: GatePage, series: Sequence[int], last_ns: int | None) -> None:
        self.page, self.series, self.last_ns = page, series, last_ns


class GateTier:
    """Reads every device's page at each tick, in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        series: Sequence[Series],
        sink: Sink,
        *,
        tick_seconds: float = 0.01,
    ) -> None:
        self._folder, self._sink, self._tick_seconds = folder, sink, tick_seconds
        self._series: dict[str, list[int]] = {}
        for number, one in enumerate(series):
            if one.source == GATE and one.metric in METRICS:
                self._series.setdefault(one.device, []).append(number)
        self._pages: dict[str, GatePage] = {}
        self._newest: dict[str, _Watched] = {}
        self._watched: Sequence[_Watched] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gate", daemon=True)

    @property
    def pages(self) -> Mapping[str, GatePage]:
        """Those that are open, by UUID."""
        return self._pages

    def look_for_pages(self, now: float) -> None:
        """Open pages that have come, and let go of those that were replaced. May block."""
        pages = dict(self._pages)
        for uuid, series in self._series.items():
            try:
                path = page_file(self._folder, uuid)
                if uuid in pages and path.stat().st_ino == pages[uuid].inode:
                    continue
                page, before = GatePage(path), self._newest.get(uuid)
                if before is not None:
                    page.go_on_from(before.page)
                pages[uuid] = page
                self._newest[uuid] = _Watched(page, series, before.last_ns if before else None)
            except (TurnstileError, OSError) as error:
                text = str(error) if isinstance(error, TurnstileError) else "its page is gone"
                pages.pop(uuid, None)
                for number in series:
                    self._sink.write(number, now, None, 0.0, text)
        self._pages = pages  # the tick's thread may still be in an old one: it is not closed
        self._watched = [self._newest[uuid] for uuid in pages]

    def tick(self, now_ns: int) -> bool:
        """Read all pages once; whether anybody sits at one."""
        seated = False
        for one in self._watched:
            last_ns = one.last_ns
            if not one.page.empty:
                seated = True
            elif last_ns is not None and now_ns - last_ns < IDLE_NS:
                continue
            window = 0.0 if last_ns is None else (now_ns - last_ns) / 1e9
            one.last_ns = now_ns
            self._sink.write_together(one.series, now_ns / 1e9, one.page.read(now_ns), window)
        self._sink.tick()
        return seated

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        tick, wait = self.tick, time.sleep
        due = time.monotonic()
        while not self._stop.is_set():
            pause = self._tick_seconds if tick(time.monotonic_ns()) else IDLE_NS / 1e9
            due += pause
            now = time.monotonic()
            if due < now:  # it was late: no reading is made up for
                due = now + pause
            wait(due - now)
