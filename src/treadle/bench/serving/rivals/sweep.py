"""Which settings of a server are tried, and which is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace


class Setting(Struct, frozen=True, kw_only=True):
    """How a server batches, and over how many processes it spreads what can be spread."""

    max_batch: int
    delay_seconds: float
    """A batch waits so long for more."""
    processes: int
    """LitServe: that take requests; MLServer: that run models, 0 for its own."""

    def __str__(self) -> str:
        return f"{self.max_batch} rows, {self.delay_seconds * 1e3:g} ms, {self.processes} proc."


class Tried(Struct, frozen=True, kw_only=True):
    """What a short search came to."""

    setting: Setting
    rate: float | None
    """The highest at which every objective held, all models together; None: none did."""
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """What can be set; the first of each is where the sweep begins."""

    batches: tuple[int, ...] = (32, 8, 64)
    delays_seconds: tuple[float, ...] = (0.005, 0.0, 0.01)
    processes: tuple[int, ...] = (1,)


def next_to_try(grid: Grid, tried: Sequence[Tried]) -> Setting | None:
    """The next setting to try, one knob after the other with the best of those before.

    Args:
        grid: What can be set.
        tried: So far.

    Returns:
        None once every knob was turned.
    """
    by_setting = {one.setting: one for one in tried}
    current = Setting(
        max_batch=grid.batches[0],
        delay_seconds=grid.delays_seconds[0],
        processes=grid.processes[0],
    )
    knobs: dict[str, Sequence[float]] = {
        "max_batch": grid.batches,
        "delay_seconds": grid.delays_seconds,
        "processes": grid.processes,
    }
    for knob, values in knobs.items():
        settings = [replace(current, **{knob: value}) for value in values]
        for setting in settings:
            if setting not in by_setting:
                return setting
        current = best_of([by_setting[setting] for setting in settings]).setting
    return None


def best_of(tried: Sequence[Tried]) -> Tried:
    """The one with the highest rate; the first of equals."""
    return max(tried, key=lambda one: one.rate or 0.0)
