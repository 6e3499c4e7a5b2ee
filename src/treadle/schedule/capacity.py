"""How much of a device is taken, as each class of work sees it."""

from __future__ import annotations

from treadle.types import Priority

_ROUNDING = 1e-9


class Capacity:
    """The shares of one device that running batches hold.

    Where the device lets urgent work overtake (a CPU with scheduling priorities), running work
    of a lower class does not count for a more urgent one: it yields by itself.
    """

    def __init__(self, *, urgent_overtakes: bool) -> None:
        self._urgent_overtakes = urgent_overtakes
        self._held = dict.fromkeys(Priority, 0.0)
        self._count = dict.fromkeys(Priority, 0)

    def fits(self, priority: Priority, share: float) -> bool:
        """Whether a batch of this class may start on ``share`` of the device (0 to 1) now."""
        seen = Priority if not self._urgent_overtakes else [p for p in Priority if p <= priority]
        return sum(self._held[p] for p in seen) + share <= 1 + _ROUNDING

    def hold(self, priority: Priority, share: float) -> None:
        self._count[priority] += 1
        self._held[priority] += share

    def release(self, priority: Priority, share: float) -> None:
        self._count[priority] -= 1
        self._held[priority] -= share
        if self._count[priority] == 0:
            self._held[priority] = 0.0  # no rounding error outlives the work

    @property
    def held(self) -> float:
        """Sum of all shares held; over 1 while urgent work overtakes."""
        return sum(self._held.values())
