"""The jobs that wait: by what they need, and by whom they wait for. In memory, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from treadle.jobs.spec import Job
from treadle.schedule.place import Kind, Need
from treadle.types import TaskState


class Waiting:
    """Queued jobs. Each is ready, held by somebody, or waits for other jobs."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._needs: dict[int, Need] = {}
        self._ready: dict[Need, dict[int, None]] = {}
        self._numbers: dict[Need, int] = {}
        self._missing: dict[int, set[int]] = {}
        self._dependents: dict[int, set[int]] = {}
        self._why: dict[Need, str] = {}

    def __len__(self) -> int:
        return len(self._jobs)

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
        line = self._ready.setdefault(need, {})
        if job.held or job.id in self._missing:
            line.pop(job.id, None)
            return
        if job.id in line:
            return
        newest = next(reversed(line), 0)
        line[job.id] = None
        if job.id < newest:  # one that comes back goes where it was
            self._ready[need] = dict.fromkeys(sorted(line))

    def take(self, number: int) -> Job:
        """Take a job out of the line."""
        job, need = self._jobs.pop(number), self._needs.pop(number)
        line = self._ready[need]
        line.pop(number, None)
        if not line:
            del self._ready[need]
            self._numbers.pop(need, None)
            self._why.pop(need, None)
        for other in self._missing.pop(number, ()):
            self._dependents.get(other, set()).discard(number)
        return job

    def ended(self, number: int, state: TaskState) -> list[int]:
        """A job is over. Returns those that waited for it and never can start now."""
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
        found = []
        for need, line in self._ready.items():
            if line:
                number = self._numbers.setdefault(need, len(self._numbers))
                found.append(Kind(number, need, tuple(islice(line, most))))
        return found

    def explain(self, waiting: Mapping[int, str]) -> None:
        """Keep why the rest waits, by number of kind."""
        self._why = {need: waiting[n] for need, n in self._numbers.items() if n in waiting}

    def why(self, job: Job) -> str:
        """Why a job waits, in words."""
        if job.held:
            return "held"
        if missing := self._missing.get(job.id):
            return f"waits for job {', '.join(map(str, sorted(missing)))}"
        return self._why.get(self._needs[job.id], job.reason)
