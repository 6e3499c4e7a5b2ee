"""The jobs that wait: by what they need, and by whom they wait for. In memory, no I/O."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from treadle.programs.spec import Job
from treadle.schedule.place import Kind, Need
from treadle.types import TaskState


class _Line:
    """The ready jobs that need the same, the oldest first."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.ready: dict[int, float] = {}
        """With the moment from which it could have been started."""
        self.why = ""
        self._heap: list[int] = []

    def add(self, job: int, now: float) -> None:
        if job not in self.ready:
            self.ready[job] = now
            heapq.heappush(self._heap, job)

    def oldest(self, most: int) -> list[int]:
        """At most so many. Numbers of jobs that have left stay in the heap until they are met."""
        found: list[int] = []
        while self._heap and len(found) < most:
            job = heapq.heappop(self._heap)
            if job in self.ready and job not in found[-1:]:
                found.append(job)
        for job in found:
            heapq.heappush(self._heap, job)
        return found


class Waiting:
    """Queued jobs. Each is ready, held by somebody, or waits for other jobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[int, Job] = {}
        self._needs: dict[int, Need] = {}
        self._lines: dict[Need, _Line] = {}
        self._numbers = count()
        self._missing: dict[int, set[int]] = {}
        self._dependents: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __contains__(self, number: int) -> bool:
        return number in self._jobs

    def add(self, job: Job, need: Need, missing: Iterable[int] = ()) -> None:
        """Queue a job that must wait for the ``missing`` ones first."""
        self._jobs[job.id] = job
        self._needs[job.id] = need
        if found := set(missing):
            self._missing[job.id] = found
            for number in found:
                self._dependents.setdefault(number, set()).add(job.id)
        self.look_again(job)

    def look_again(self, job: Job) -> None:
        """Put a job among those that are ready, or take it away, as it is held or not."""
        need = self._needs[job.id]
        if job.held or job.id in self._missing:
            self._leave(job.id, need)
            return
        if need not in self._lines:
            self._lines[need] = _Line(next(self._numbers))
        self._lines[need].add(job.id, self._clock())

    def take(self, number: int) -> Job:
        """Take a job out of the line."""
        job, need = self._jobs.pop(number), self._needs.pop(number)
        self._leave(number, need)
        for other in self._missing.pop(number, ()):
            waited = self._dependents.get(other, set())  # none if it is over
            waited.discard(number)
            if not waited:
                self._dependents.pop(other, None)
        return job

    def _leave(self, number: int, need: Need) -> None:
        if (line := self._lines.get(need)) is not None:
            line.ready.pop(number, None)
            if not line.ready:
                del self._lines[need]

    def ended(self, number: int, state: TaskState) -> list[int]:
        """A job is over. Returns those that waited for it and never can start now.

        They wait for it until they are taken away.
        """
        waited = self._dependents.pop(number, set())
        if state is not TaskState.FINISHED:
            return sorted(waited)
        for other in waited:
            missing = self._missing[other]
            missing.discard(number)
            if not missing:
                del self._missing[other]
                self.look_again(self._jobs[other])
        return []

    def kinds(self, most: int) -> list[Kind]:
        """What is ready, at most so many of each kind."""
        now, found = self._clock(), []
        for need, line in self._lines.items():
            jobs = tuple(line.oldest(most))
            found.append(Kind(line.number, need, jobs, now - line.ready[jobs[0]] if jobs else 0.0))
        return found

    def explain(self, waiting: Mapping[int, str]) -> None:
        """Keep why the rest waits, by number of kind."""
        for line in self._lines.values():
            line.why = waiting.get(line.number, "")

    def why(self, job: Job) -> str:
        """Why a job waits, in words."""
        if job.held:
            return "held"
        if missing := self._missing.get(job.id):
            return f"waits for job {', '.join(map(str, sorted(missing)))}"
        line = self._lines.get(self._needs[job.id])
        return (line.why if line is not None else "") or job.reason
