"""What jobs need of the devices, and what those that have a place have taken of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from treadle.programs.spec import Job
from treadle.programs.starting import Starter
from treadle.schedule.place import Need, Room
from treadle.types import TaskState


class Places:
    """The jobs that have a place."""

    def __init__(self, starter: Starter, rooms: Callable[[], Sequence[Room]]) -> None:
        """Begin with none.

        Args:
            starter: Knows what a job needs.
            rooms: The devices, with what others than jobs have taken.
        """
        self._starter, self._rooms = starter, rooms
        self._taken: dict[int, tuple[Job, Need]] = {}

    def __iter__(self) -> Iterator[Job]:
        return (job for job, _ in self._taken.values())

    def need(self, job: Job) -> Need:
        """What a job needs of each of its devices."""
        return self._starter.need(job.spec, self._rooms(), job.uid)

    def take(self, job: Job) -> None:
        """Give a job its place: its devices are known."""
        self._taken[job.id] = job, self.need(job)

    def leave(self, job: Job) -> None:
        """Take a job's place back, if it has one."""
        self._taken.pop(job.id, None)

    def on(self, uuid: str) -> list[Job]:
        """The jobs that have a place on a device."""
        return [job for job in self if uuid in job.devices]

    def free(self) -> list[Room]:
        """The rooms less what jobs have taken."""
        taken, lasting = _Sums(), _Sums()
        for job, need in self._taken.values():
            for uuid in job.devices:
                taken.add(uuid, need)
                if job.spec.service or job.state is TaskState.PAUSED:
                    lasting.add(uuid, need)
        return [
            replace(
                room,
                free_memory_bytes=min(
                    room.free_memory_bytes, room.memory_bytes - taken.memory[room.uuid]
                ),
                free_share=room.free_share - taken.share[room.uuid],
                lasting_memory_bytes=max(
                    room.memory_bytes - room.free_memory_bytes, lasting.memory[room.uuid]
                ),
                lasting_share=lasting.share[room.uuid],
            )
            for room in self._rooms()
        ]


class _Sums:
    """Of needs, by device."""

    def __init__(self) -> None:
        self.memory: defaultdict[str, int] = defaultdict(int)
        self.share: defaultdict[str, float] = defaultdict(float)

    def add(self, uuid: str, need: Need) -> None:
        self.memory[uuid] += need.memory_bytes
        self.share[uuid] += need.share
