"""What can be turned, within which range, and by whom: one owner for each knob."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from treadle.errors import TreadleError


class KnobError(TreadleError):
    """A knob is unknown, has an owner already, or was given no number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One thing that a control loop turns."""

    name: str
    unit: str
    least: float
    most: float
    usual: float
    help: str
    owner: str
    """Who turns it, in words for a person."""
    resolution: float = 0.0
    """A change below this is not written; in the knob's unit."""


class Knobs:
    """The knobs of one GPU."""

    def __init__(self) -> None:
        self._knobs: dict[str, Knob] = {}

    def register(self, *knobs: Knob) -> None:
        """Add knobs: all of them or, if one cannot be added, none.

        Raises:
            KnobError: If one has an owner already, or its figures contradict each other.
        """
        added: dict[str, Knob] = {}
        for knob in knobs:
            before = self._knobs.get(knob.name) or added.get(knob.name)
            if before is not None:
                raise KnobError(
                    f"the knob {knob.name} is turned by {before.owner}:"
                    f" {knob.owner} cannot turn it, too"
                )
            if not (knob.least <= knob.usual <= knob.most and knob.resolution >= 0):
                raise KnobError(
                    f"the knob {knob.name} of {knob.owner}: {knob.usual:g} is usual, but"
                    f" {knob.least:g} to {knob.most:g} is allowed"
                )
            added[knob.name] = knob
        self._knobs.update(added)

    def release(self, owner: str) -> None:
        """Forget the knobs of an owner that has ended."""
        self._knobs = {n: k for n, k in self._knobs.items() if k.owner != owner}

    def __getitem__(self, name: str) -> Knob:
        try:
            return self._knobs[name]
        except KeyError:
            known = ", ".join(self._knobs) or "none"
            raise KnobError(f"no knob {name!r}; there are {known}") from None

    def __iter__(self) -> Iterator[Knob]:
        return iter(self._knobs.values())

    def __len__(self) -> int:
        return len(self._knobs)

    def clip(self, name: str, value: float) -> float:
        """The nearest value that is allowed.

        Raises:
            KnobError: If there is no such knob, or ``value`` is no number.
        """
        knob = self[name]
        if math.isnan(value):
            raise KnobError(f"the knob {name} of {knob.owner} cannot be set to no number")
        return min(knob.most, max(knob.least, value))

    def turned(self, before: Mapping[str, float], wanted: Mapping[str, float]) -> dict[str, float]:
        """``before`` with what is wanted, clipped; too small a change is left out."""
        after = dict(before)
        for name, value in wanted.items():
            clipped = self.clip(name, value)
            if name not in before or abs(clipped - before[name]) >= self[name].resolution:
                after[name] = clipped
        return after


BUDGET, LINGER, DUTY, QUANTUM = (
    "budget_seconds",
    "linger_seconds",
    "duty_fraction",
    "quantum_seconds",
)
_PAGE: Mapping[str, tuple[str, float]] = {
    BUDGET: ("budget_ns", 1e9),
    LINGER: ("linger_ns", 1e9),
    DUTY: ("duty_ppm", 1e6),
    QUANTUM: ("quantum_ns", 1e9),
}


def turnstile_knobs(owner: str) -> tuple[Knob, ...]:
    """Those of a turnstile that a controller turns."""
    rows = (
        (BUDGET, "s", 50e-6, 10e-3, 500e-6, 10e-6, "predicted GPU time in flight of lower work"),
        (LINGER, "s", 0.0, 1.0, 0.0, 20e-6, "how long the gate stays closed after urgent work"),
        (DUTY, "fraction", 0.0, 0.95, 0.01, 1e-3, "least share of time for lower work"),
        (QUANTUM, "s", 1e-3, 100e-3, 10e-3, 500e-6, "the turn of one of several equals"),
    )
    return tuple(
        Knob(
            name=name,
            unit=unit,
            least=least,
            most=most,
            usual=usual,
            resolution=resolution,
            help=meaning,
            owner=owner,
        )
        for name, unit, least, most, usual, resolution, meaning in rows
    )


def page_values(settings: Mapping[str, float]) -> dict[str, int]:
    """Settings as the turnstile's page has them, by the page's names; other knobs are left out."""
    return {
        _PAGE[name][0]: round(value * _PAGE[name][1])
        for name, value in settings.items()
        if name in _PAGE
    }
