"""Which queued job starts now, and where: best fit by memory and share.

Jobs that need the same are one *kind*: if one of them does not fit, none does, so a pass costs as
much as there are kinds and starts, however long the queue.

Smaller jobs pass one that does not fit, until it has waited for long: then devices are kept free
for it. Nobody knows how long jobs run, so nothing new starts on those until it has started.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from treadle.types import Action, ActionKind, Plan, Priority

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Need:
    """What a job needs of each device that it gets."""

    priority: Priority
    memory_bytes: int
    share: float
    """Of a GPU's compute, or cores of the CPU."""
    gpus: int
    """How many GPUs; 0 is a place on the CPU."""
    guest: bool = False
    """Whether it is of another user than the node's."""


@dataclass(frozen=True, slots=True)
class Room:
    """A device, and what of it is still free."""

    uuid: str
    is_gpu: bool
    memory_bytes: int
    """Of the whole device."""
    share: float
    """Of the whole device: 1 for a GPU, its cores for the CPU."""
    free_memory_bytes: int
    free_share: float
    single: bool = False
    """Whether only jobs of one GPU, and of the node's own user, can run there."""
    closed: str = ""
    """Why nothing may start there now; empty if it may."""
    lasting_memory_bytes: int = 0
    """Taken by what does not end by itself: services, paused jobs, programs that are no jobs."""
    lasting_share: float = 0.0


@dataclass(frozen=True, slots=True)
class Kind:
    """Queued jobs that need the same, the oldest first."""

    number: int
    need: Need
    jobs: Sequence[int]
    waited_seconds: float = 0.0
    """How long the oldest could have been started, had there been room."""


def best_fit(
    kinds: Iterable[Kind], rooms: Sequence[Room], most: int, reserve_after_seconds: float = math.inf
) -> Plan:
    """Start what fits: the most urgent first, then the oldest, each where least is left over.

    A job that does not fit lets smaller ones past it, until it has waited for long.

    Args:
        kinds: The queue.
        rooms: The devices.
        most: How many may start at once.
        reserve_after_seconds: For a job that has waited so long, devices are kept free.
    """
    kept: dict[str, int] = {}
    free = {room.uuid: [room.free_memory_bytes, room.free_share] for room in rooms}
    heads = [
        (kind.need.priority, kind.jobs[0], 0, kind.number, kind) for kind in kinds if kind.jobs
    ]
    heapq.heapify(heads)
    actions: list[Action] = []
    waiting: dict[int, str] = {}
    while heads:
        priority, job, place, number, kind = heads[0]
        if len(actions) >= most:
            waiting[number] = "others are being started"
            heapq.heappop(heads)
            continue
        open_ = [room for room in rooms if room.uuid not in kept]
        chosen = _choose(kind.need, open_ if kept else rooms, free)
        if isinstance(chosen, str):
            others = _choose(kind.need, rooms, free) if kept else chosen
            if not isinstance(others, str):
                jobs = sorted({kept[uuid] for uuid in others if uuid in kept})
                chosen = f"{_devices(len(others), kind.need)} kept free for {_jobs(jobs)}"
            elif kind.waited_seconds >= reserve_after_seconds:
                found = _nearest(kind.need, open_, free)
                kept |= dict.fromkeys(found, job)
                chosen = others + (
                    f"; {_devices(len(found), kind.need)} kept free for it" if found else ""
                )
            else:
                chosen = others
            waiting[number] = chosen
            heapq.heappop(heads)
            continue
        for uuid in chosen:
            free[uuid][0] -= kind.need.memory_bytes
            free[uuid][1] -= kind.need.share
        actions.append(Action(ActionKind.START, job, tuple(chosen)))
        if place + 1 < len(kind.jobs):
            following = (priority, kind.jobs[place + 1], place + 1, number, kind)
            heapq.heapreplace(heads, following)
        else:
            heapq.heappop(heads)
    return Plan(tuple(actions), waiting)


def _choose(
    need: Need, rooms: Sequence[Room], free: Mapping[str, Sequence[float]]
) -> list[str] | str:
    """The devices that it gets, or why it has to wait."""
    count = max(1, need.gpus)
    possible = [room for room in rooms if room.is_gpu == bool(need.gpus)]
    fitting = sorted(
        (free[room.uuid][0] - need.memory_bytes, free[room.uuid][1] - need.share, room.uuid)
        for room in possible
        if _may(need, room)
        and free[room.uuid][0] >= need.memory_bytes
        and free[room.uuid][1] >= need.share - _ROUNDING
    )
    if len(fitting) >= count:
        return [uuid for _, _, uuid in fitting[:count]]
    return _why(need, count, possible, free, len(fitting))


def _may(need: Need, room: Room) -> bool:
    """Whether such a job may run on a device, if there is room."""
    return not room.closed and not (room.single and (need.gpus > 1 or need.guest))


def _nearest(need: Need, rooms: Sequence[Room], free: Mapping[str, Sequence[float]]) -> list[str]:
    """The devices that lack least of what a job needs, and will have it: none if too few will.

    Nothing new starts there, so they never lack more than before: the job does get its turn.
    """
    count = max(1, need.gpus)
    lacking = sorted(
        (
            max(0, need.memory_bytes - free[room.uuid][0]) / max(1, room.memory_bytes)
            + max(0.0, need.share - free[room.uuid][1]) / max(_ROUNDING, room.share),
            room.uuid,
        )
        for room in rooms
        if room.is_gpu == bool(need.gpus)
        and _may(need, room)
        and room.memory_bytes - room.lasting_memory_bytes >= need.memory_bytes
        and room.share - room.lasting_share >= need.share - _ROUNDING
    )
    return [uuid for _, uuid in lacking[:count]] if len(lacking) >= count else []


def _devices(count: int, need: Need) -> str:
    if not need.gpus:
        return "the CPU is"
    return "a GPU is" if count == 1 else f"{count} GPUs are"


def _jobs(numbers: Sequence[int]) -> str:
    return f"job{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


_ROUNDING = 1e-9


def _why(
    need: Need,
    count: int,
    possible: Sequence[Room],
    free: Mapping[str, Sequence[float]],
    fitting: int,
) -> str:
    what = "GPU" if need.gpus else "CPU"
    never = cannot_ever(need, possible)
    if never:
        return never
    open_rooms = [room for room in possible if not room.closed]
    if len(open_rooms) < count:
        return "; ".join(sorted({room.closed for room in possible if room.closed}))
    shared = [room for room in open_rooms if not room.single]
    if (count > 1 or need.guest) and len(shared) < count:
        if need.guest and count == 1:
            return "is not of the node's user: needs a GPU in turns mode"
        return f"needs {count} {what}s in turns mode, there are {len(shared)}"
    if count > 1 and fitting:
        return f"needs {count} {what}s with room, {fitting} have it"
    large = [room for room in open_rooms if free[room.uuid][0] >= need.memory_bytes]
    if not large:
        largest = max(free[room.uuid][0] for room in open_rooms)
        return f"needs {_gib(need.memory_bytes)}, largest free slot {_gib(max(0.0, largest))}"
    widest = max(free[room.uuid][1] for room in large)
    unit = "of a GPU" if need.gpus else "cores"
    where = "" if len(large) == len(open_rooms) else " where there is memory for it"
    return f"needs {need.share:g} {unit}, most that is free{where} {max(0.0, widest):.3g}"


def _gib(size: float) -> str:
    gib = size / _GIB
    return f"{gib:.0f} GiB" if gib >= 100 else f"{gib:.3g} GiB"


def cannot_ever(need: Need, rooms: Sequence[Room]) -> str:
    """Why no device could hold it even if all were empty; empty if enough could.

    Args:
        need: Of the job.
        rooms: The devices of its sort.
    """
    count = max(1, need.gpus)
    fitting = [
        room
        for room in rooms
        if room.memory_bytes >= need.memory_bytes and room.share >= need.share - _ROUNDING
    ]
    if len(fitting) >= count:
        return ""
    what = "GPU" if need.gpus else "the CPU"
    if len(rooms) < count:
        return f"needs {count} {what}{'s' * (count > 1)}, there are {len(rooms) or 'none here'}"
    largest = max(room.memory_bytes for room in rooms)
    if largest < need.memory_bytes:
        return f"needs {_gib(need.memory_bytes)}, the largest device here has {_gib(largest)}"
    widest = max(room.share for room in rooms)
    if widest < need.share - _ROUNDING:
        unit = "of a GPU" if need.gpus else "cores"
        return f"needs {need.share:g} {unit}, {what} has {widest:g}"
    return f"needs {count} {what}s that large, there are {len(fitting)}"
