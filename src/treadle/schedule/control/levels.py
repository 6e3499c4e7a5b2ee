"""One number from most protective (0) over usual (0.5) to most generous (1), and what it sets.

The knobs move together, so that what a step does is known before it is taken: everything is at
least as generous at a higher level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treadle.schedule.control.knobs import BUDGET, DUTY, LINGER, QUANTUM

PROTECTIVE, USUAL, GENEROUS = 0.0, 0.5, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A knob at the three levels that are stated; geometric or linear between them."""

    protective: float
    usual: float
    generous: float

    def at(self, level: float) -> float:
        low, high, part = (
            (self.protective, self.usual, level / USUAL)
            if level <= USUAL
            else (self.usual, self.generous, (level - USUAL) / (GENEROUS - USUAL))
        )
        if low > 0 and high > 0:
            return float(low * (high / low) ** part)
        return low + (high - low) * part


BUDGETS = Span(protective=100e-6, usual=500e-6, generous=2e-3)
LINGERS = Span(protective=1e-3, usual=0.0, generous=0.0)
QUANTA = Span(protective=2e-3, usual=10e-3, generous=20e-3)
MOST_DUTY = 0.3
"""More than urgent work leaves, for long, would let its line grow without end."""
STOP_LINGER_SECONDS = 1.0
"""The longest that a gate honours: lower work then runs only after a second of silence."""


def settings_at(
    level: float,
    minimum_duty: float,
    *,
    equals_matter: bool = False,
    classes_mixed: bool = False,
) -> dict[str, float]:
    """The settings at a level.

    Above the usual level the duty grows with the square of the way: the first steps are small.
    The quantum is turned only where one of several equals has an objective. Where critical and
    normal work share a GPU nothing lingers: that would hold normal work back as well.
    """
    above = max(0.0, (level - USUAL) / (GENEROUS - USUAL))
    return {
        BUDGET: BUDGETS.at(level),
        LINGER: LINGERS.usual if classes_mixed else LINGERS.at(level),
        DUTY: minimum_duty + max(0.0, MOST_DUTY - minimum_duty) * above**2,
        QUANTUM: QUANTA.at(level) if equals_matter else QUANTA.usual,
    }


def stopped() -> Mapping[str, float]:
    """Lower work does not run, as long as urgent work comes at least once a second."""
    return {
        BUDGET: BUDGETS.protective,
        LINGER: STOP_LINGER_SECONDS,
        DUTY: 0.0,
        QUANTUM: QUANTA.usual,
    }
