"""The constants of a controller, in one place, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Times in seconds, chances and levels from 0 to 1."""

    allowed_fraction: float = 0.01
    """A P99 objective allows one late request in a hundred."""
    trust: float = 0.1
    """So improbable must as few near ones be, were one in a hundred near, to say there is room:
    none of 230, one of 388."""
    nearly_fraction: float = 0.007
    """As many late requests are nearly too many, with at least ``nearly_count`` requests."""
    nearly_count: int = 300
    severe_fraction: float = 0.1
    severe_count: int = 8
    """So many late requests, and such a part of all, are no matter of degree: to the most
    protective settings at once."""
    doubts: tuple[tuple[float, float], ...] = (
        (0.25, 1e-4),
        (1.0, 1e-3),
        (5.0, 1e-2),
        (30.0, 1e-2),
    )
    """Windows, and how improbable as many late requests in one must be, were one in a hundred
    late, to say missed. Short ones are looked at more often, and requests are late in clusters.
    Whether there is room is asked over the longest."""
    enough_count: int = 500
    longest_seconds: float = 600.0
    """The longest reaches as far back as so many requests take, but at most so long."""
    stale_seconds: float = 3.0
    """A latency is stale at this age, or at three of its own windows if they are longer."""
    over_seconds: float = 2.0
    """Late requests are over if none came for so long, among as many as show that there is room."""
    recover_seconds: float = 30.0
    """For so long without latencies, or without requests, what was learned still holds."""

    back_off_factor: float = 0.5
    back_off_floor: float = 0.1
    """Below this level, the most protective is meant."""
    step_nearly: float = 0.05
    step_up: float = 0.05
    step_up_below_usual: float = 0.1
    step_blind: float = 0.05
    """Back to the usual level, a second, where nothing is known."""
    settle_least: float = 0.1
    settle_most: float = 10.0
    """Requests within two objectives of a change, in these bounds, have seen both settings."""

    margin: float = 0.05
    """So far below the level that failed one stays."""
    probe_first: float = 30.0
    probe_most: float = 600.0
    """For so long; twice as long each time that it fails again."""

    load_seconds: tuple[float, float] = (0.5, 10.0)
    load_rise: float = 0.25
    """Urgent work's part of the time, averaged over so long, is more than that above the slower
    average: what was learned under less load is not relied on."""

    missing_seconds: float = 5.0
    """Missed for so long at the most protective settings: see what it takes alone."""
    alone_most_seconds: float = 10.0
    alone_count: int = 300
    """Requests alone after which it may be said that it is missed alone."""
    retry_first: float = 60.0
    retry_most: float = 600.0
