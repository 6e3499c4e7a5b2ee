"""Jobs and needs for tests."""

from __future__ import annotations

from typing import Any

from treadle.programs.spec import Job, JobSpec
from treadle.schedule.place import Need
from treadle.types import Priority, TaskState

NEED = Need(Priority.BACKGROUND, 0, 1.0, 0)
OTHER = Need(Priority.NORMAL, 0, 1.0, 0)


def spec(*command: str, **fields: Any) -> JobSpec:
    return JobSpec(command=command or ("true",), **fields)


def job(number: int, **fields: Any) -> Job:
    made: dict[str, Any] = {"spec": spec(), "state": TaskState.QUEUED, "uid": 0, "submitted_at": 1}
    return Job(id=number, **(made | fields))
