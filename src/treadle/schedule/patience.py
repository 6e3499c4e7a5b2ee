"""How long the first request of a batch may wait for company, if P99 is to come to a target."""

from __future__ import annotations

from collections.abc import Sequence

_WINDOW = 250
"""Latencies between two corrections: two or three of them lie above their P99."""
_GAIN = 0.4
_AIM = 0.975
"""P99 is steered to this part of the target: from below, and well within 5%."""


class Patience:
    """A slow integral correction: what is missing to the target is added, bit by bit.

    Latency grows with patience, by the batch that it lets grow; what else is in a latency
    (queueing, copies, the way back) is learned by this, not modelled.
    """

    def __init__(self, target_seconds: float) -> None:
        self.seconds = target_seconds / 2
        """How long after its arrival a batch's first request may be answered."""
        self._target = target_seconds
        self._latencies: list[float] = []

    def observe(self, seconds: float) -> None:
        """Take in how long a request took, from its arrival to its answer."""
        self._latencies.append(seconds)
        if len(self._latencies) < _WINDOW:
            return
        missing = _AIM * self._target - _p99(self._latencies)
        self._latencies = []
        # What is too much is taken back faster than what is too little is given.
        step = _GAIN * missing * (2 if missing < 0 else 1)
        self.seconds = min(self._target, max(0.0, self.seconds + step))


def _p99(latencies: Sequence[float]) -> float:
    return sorted(latencies)[int(0.99 * (len(latencies) - 1))]
