"""The 10 ms tier: what the turnstiles' own counters say. Nothing here can block.

Only the words that are needed are read, each on its own: words of one page may disagree a little.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.monitor.directory import GATE, Series
from treadle.turnstile import TurnstileError
from treadle.turnstile.folder import page_file
from treadle.turnstile.page import CLASSES, PAGE_BYTES, RECORD_BYTES, Page, Record, why_unusable

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
_URGENT = 2
"""Critical and normal marks make a GPU busy for others."""


def _word(offset: int) -> int:
    assert offset % 8 == 0
    return offset // 8


_MARKS, _MEMBERS = _word(Page.marks.offset), _word(Page.members.offset)
_FIRST, _STEP = _word(Page.record.offset), _word(RECORD_BYTES)
_GENERATION = Record.generation.offset // 4
_LAUNCHES, _PREDICTED = _word(Record.launches.offset), _word(Record.predicted_ns.offset)
_WAITED, _BUDGET_WAITED = (
    _word(Record.waited_ns.offset),
    _word(Record.budget_waited_ns.offset),
)
_MEMORY, _MARKED = _word(Record.memory_used_bytes.offset), _word(Record.marked_ns.offset)


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

    __slots__ = ("credited", "generation", "launches", "marked_since", "waited", "work")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.launches = self.work = self.waited = self.credited = 0
        self.marked_since: int | None = None


class GatePage:
    """One page, looked at again and again."""

    def __init__(self, path: Path) -> None:
        """Map a page.

        Raises:
            TurnstileError: If it is not there, or not a page of this version.
        """
        try:
            with path.open("rb") as file:
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
        self._halves = memoryview(self._memory).cast("I")
        self._seen: dict[int, _Sat] = {}
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
    def empty(self) -> bool:
        """Whether nobody sits there."""
        words = self._words
        return not (words[_MEMBERS] | words[_MEMBERS + 1] | words[_MEMBERS + 2])

    @property
    def seats(self) -> int:
        """The records that are taken, by the living or the dead, as bits."""
        return sum_or(self._words, _MEMBERS, CLASSES)

    def read(self, now_ns: int) -> GateFigures:
        """Read it now. ``busy`` is over the time since the last read; the first time it is 0."""
        words = self._words
        window = 0 if self._last_ns is None else now_ns - self._last_ns
        first, self._last_ns = self._last_ns is None, now_ns
        urgent = sum_or(words, _MARKS, _URGENT)
        seated = sum_or(words, _MEMBERS, CLASSES) & ~self.dead
        busy_ns = memory = members = 0
        left = seated
        while left:
            index = (left & -left).bit_length() - 1
            left &= left - 1
            members += 1
            base = _FIRST + index * _STEP
            memory += words[base + _MEMORY]
            busy_ns += self._follow(index, base, bool(urgent >> index & 1), now_ns, window, first)
        busy = min(1.0, busy_ns / window) if window else 0.0
        return GateFigures(
            busy, self._launches, self._work / 1e9, self._waited / 1e9, memory, members
        )

    def _follow(
        self, index: int, base: int, marked: bool, now_ns: int, window: int, first: bool
    ) -> int:
        """Add what a seat did since it was last seen; how long it was marked in the window."""
        words = self._words
        generation = self._halves[2 * base + _GENERATION]
        launches, work = words[base + _LAUNCHES], words[base + _PREDICTED]
        waited = words[base + _WAITED] + words[base + _BUDGET_WAITED]
        sat = self._seen.get(index)
        if sat is None or sat.generation != generation:
            sat = self._seen[index] = _Sat(generation)
            if first:  # what came before this was opened is not counted
                sat.launches, sat.work, sat.waited = launches, work, waited
                sat.credited = words[base + _MARKED]
        self._launches += max(0, launches - sat.launches)
        self._work += max(0, work - sat.work)
        self._waited += max(0, waited - sat.waited)
        sat.launches, sat.work, sat.waited = launches, work, waited
        # A mark's time is on the page only once it is taken away: until then, since it was seen.
        total = words[base + _MARKED]
        if not marked:
            sat.marked_since = None
        elif sat.marked_since is None:
            sat.marked_since = now_ns
        else:
            total += now_ns - sat.marked_since
        credit = max(0, total - sat.credited)
        sat.credited = max(sat.credited, total)
        return min(credit, window)

    def close(self) -> None:
        self._words.release()
        self._halves.release()
        self._memory.close()


def sum_or(words: memoryview, start: int, count: int) -> int:
    """All bits that are set in any of so many words."""
    found = 0
    for offset in range(start, start + count):
        found |= words[offset]
    return found


Write = Callable[[int, float, float | None, float, str], None]


class GateTier:
    """Reads every device's page at each tick, in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        series: Sequence[Series],
        write: Write,
        *,
        tick_seconds: float = 0.01,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._write, self._tick_seconds = folder, write, tick_seconds
        self._on_tick = on_tick
        self._series: dict[str, list[int]] = {}
        for number, one in enumerate(series):
            if one.source == GATE and one.metric in METRICS:
                self._series.setdefault(one.device, []).append(number)
        self._pages: dict[str, GatePage] = {}
        self._newest: dict[str, GatePage] = {}
        self._last_ns: dict[str, int] = {}
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
                page = GatePage(path)
                if uuid in self._newest:
                    page.go_on_from(self._newest[uuid])
                pages[uuid] = self._newest[uuid] = page
            except (TurnstileError, OSError) as error:
                text = str(error) if isinstance(error, TurnstileError) else "its page is gone"
                pages.pop(uuid, None)
                for number in series:
                    self._write(number, now, None, 0.0, text)
        self._pages = pages  # the tick's thread may still be in an old one: it is not closed

    def tick(self, now_ns: int) -> None:
        """Read all pages once."""
        now = now_ns / 1e9
        for uuid, page in self._pages.items():
            last_ns = self._last_ns.get(uuid)
            if page.empty and last_ns is not None and now_ns - last_ns < IDLE_NS:
                continue
            figures = page.read(now_ns)
            self._last_ns[uuid] = now_ns
            window = 0.0 if last_ns is None else (now_ns - last_ns) / 1e9
            numbers = self._series[uuid]
            self._write(numbers[0], now, figures.busy, window, "")
            for number, value in zip(numbers[1:], figures[1:], strict=True):
                self._write(number, now, value, 0.0, "")
        self._on_tick()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self.tick(time.monotonic_ns())
            idle = all(page.empty for page in self._pages.values())
            pause = IDLE_NS / 1e9 if idle else self._tick_seconds
            due += pause
            now = time.monotonic()
            if due < now:  # it was late: no reading is made up for
                due = now + pause
            time.sleep(due - now)
