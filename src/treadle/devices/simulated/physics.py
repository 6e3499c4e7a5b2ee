"""Power, clock and heat of a simulated GPU: plain arithmetic, no time of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HeatPath:
    """One first-order way from power to temperature."""

    kelvin_per_watt: float
    seconds: float
    """Time constant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The constants of a board; as they stand, those of one air-cooled H200 (700 W).

    The heat paths are a least-squares fit to steps between 79, 122 and 691 W, read every 0.1 s
    over 75 s in whole degrees: the steps were taken from the readings after undoing the driver's
    trailing mean of one second, the time constants searched on a grid, their weights solved for.
    The root mean square error is 0.38 degrees for the GPU with three paths (0.52 with two, which
    miss either the jump of eleven degrees in the first 0.1 s or the slow drift) and 0.43 for the
    memory with two. The idle powers and the clocks are the plateaus of the same readings.

    Dynamic power goes with the square of the clock. That is an assumption: there is one loaded
    plateau only, which settles the factor but not the exponent.
    """

    ambient_celsius: float = 34.2
    heat: tuple[HeatPath, ...] = (
        HeatPath(0.0218, 0.05),
        HeatPath(0.0122, 1.0),
        HeatPath(0.0048, 60.0),
    )
    memory_ambient_celsius: float = 38.1
    memory_heat: tuple[HeatPath, ...] = (HeatPath(0.0148, 1.0), HeatPath(0.0068, 20.0))
    idle_watts: float = 78.7
    """Without any context."""
    awake_watts: float = 122.3
    """With a context, at full clock, without work."""
    dynamic_watts: float = 1049.0
    """What full activity would add at full clock: 569 W at 1,458 of 1,980 MHz."""
    sm_weight: float = 0.2
    tensor_weight: float = 0.6
    dram_weight: float = 0.2
    idle_hertz: float = 345e6
    full_hertz: float = 1980e6
    memory_hertz: float = 3201e6
    slowdown_celsius: float = 87.0
    slowdown_fraction: float = 0.5
    """Of the full clock, while too hot."""
    noise_watts: float = 0.6


@dataclass(frozen=True, slots=True)
class Operation:
    """Where power and clock settle for a load."""

    watts: float
    sm_hertz: float
    capped: bool
    """Whether the power limit holds the clock down."""


def operate(
    board: Board, *, awake: bool, activity: float, limit_watts: float, hot: bool
) -> Operation:
    """Settle clock and power.

    Args:
        board: Its constants.
        awake: Whether there is a context.
        activity: 0 to 1, weighted over the parts of the GPU.
        limit_watts: The power limit.
        hot: Whether heat holds the clock down.
    """
    if not awake:
        return Operation(board.idle_watts, board.idle_hertz, capped=False)
    highest = board.slowdown_fraction if hot else 1.0
    dynamic = board.dynamic_watts * activity
    fraction = highest
    if dynamic > 0:
        room = max(0.0, limit_watts - board.awake_watts)
        fraction = min(highest, math.sqrt(room / dynamic))
    fraction = max(fraction, board.idle_hertz / board.full_hertz)
    return Operation(
        board.awake_watts + dynamic * fraction**2,
        board.full_hertz * fraction,
        capped=fraction < highest,
    )


class Temperature:
    """The sum of first-order responses to power; exact while power is constant."""

    def __init__(self, ambient_celsius: float, paths: tuple[HeatPath, ...], watts: float) -> None:
        self._ambient_celsius = ambient_celsius
        self._paths = paths
        self._rise = [path.kelvin_per_watt * watts for path in paths]

    @property
    def celsius(self) -> float:
        return self._ambient_celsius + sum(self._rise)

    def advance(self, seconds: float, watts: float) -> None:
        for number, path in enumerate(self._paths):
            target = path.kelvin_per_watt * watts
            kept = math.exp(-seconds / path.seconds)
            self._rise[number] = target + (self._rise[number] - target) * kept
