"""A controller, and what it is shown step by step."""

from __future__ import annotations

from treadle.schedule.control import Controller, Decision, Knobs, Observation, TaskLatency
from treadle.types import LatencyKind, LatencyWindow, Objective, Priority

STEP = 0.05
OBJECTIVE = 0.01


def counted(
    at: float,
    count: int,
    over: int = 0,
    near: int | None = None,
    *,
    window: float = STEP,
    p99: float | None = None,
) -> LatencyWindow:
    """So many requests in a window, so many of them late."""
    near = max(over, near or 0)
    return LatencyWindow(
        at=at,
        window_seconds=window,
        kind=LatencyKind.SAMPLES,
        count=count,
        over=(over, over),
        near=(near, near),
        p99_seconds=p99,
    )


class Driver:
    """Steps a controller every 50 ms; the same happens in each step until told otherwise."""

    def __init__(self, *, minimum_duty_fraction: float = 0.01, knobs: Knobs | None = None) -> None:
        self.controller = Controller(
            "GPU-0",
            Knobs() if knobs is None else knobs,
            minimum_duty_fraction=minimum_duty_fraction,
        )
        self.now = 100.0
        self.decisions: list[Decision] = []

    def step(
        self,
        *latencies: LatencyWindow | None,
        neighbours: tuple[str, ...] | None = ("training",),
        objective: float | None = OBJECTIVE,
        priority: Priority = Priority.CRITICAL,
    ) -> Decision:
        self.now += STEP
        tasks = tuple(
            TaskLatency(
                task=f"server-{number}",
                priority=priority,
                objective=Objective(p99_seconds=objective),
                latency=latency,
            )
            for number, latency in enumerate(latencies)
        )
        self.controller.step(Observation(tasks=tasks, neighbours=neighbours), self.now)
        self.decisions.append(self.controller.last)
        return self.controller.last

    def run(
        self,
        seconds: float,
        count: int = 10,
        late_every: int = 0,
        near_every: int = 0,
        neighbours: tuple[str, ...] | None = ("training",),
        p99: float | None = None,
    ) -> Decision:
        """``count`` requests a step; one in ``late_every`` is late, one in ``near_every`` near."""
        seen = late = near = 0
        for _ in range(round(seconds / STEP)):
            seen += count
            new_late = seen // late_every - late if late_every else 0
            new_near = seen // near_every - near if near_every else 0
            late, near = late + new_late, near + new_near
            window = counted(self.now + STEP, count, new_late, new_near, p99=p99)
            self.step(window, neighbours=neighbours)
        return self.controller.last

    @property
    def level(self) -> float:
        return self.controller.last.level

    @property
    def impossible(self) -> str:
        return self.controller.report().tasks[0].impossible
