"""A device that is partly taken: who may start beside what runs."""

from __future__ import annotations

import pytest

from treadle.schedule import Capacity, Entry
from treadle.types import Priority

from .line import BACKGROUND, CRITICAL, NORMAL, Line, Wait, nothing

# what runs, who asks with what share, whether it fits without and with overtaking
ROOM = [
    ([], (NORMAL, 1.0), True, True),
    ([(NORMAL, 0.5)], (NORMAL, 0.5), True, True),
    ([(NORMAL, 0.5)], (NORMAL, 0.6), False, False),
    ([(NORMAL, 1.0)], (NORMAL, 0.1), False, False),
    ([(BACKGROUND, 1.0)], (CRITICAL, 1.0), False, True),
    ([(NORMAL, 1.0)], (CRITICAL, 1.0), False, True),
    ([(BACKGROUND, 1.0)], (NORMAL, 1.0), False, True),
    ([(CRITICAL, 1.0)], (CRITICAL, 1.0), False, False),
    ([(CRITICAL, 1.0)], (NORMAL, 0.1), False, False),
    ([(CRITICAL, 0.5)], (BACKGROUND, 0.5), True, True),
    ([(CRITICAL, 0.5), (NORMAL, 0.5)], (BACKGROUND, 0.1), False, False),
    ([(CRITICAL, 0.5), (NORMAL, 0.5)], (NORMAL, 0.1), False, False),
    ([(CRITICAL, 0.5), (NORMAL, 0.5)], (CRITICAL, 0.5), False, True),
    ([(BACKGROUND, 1.0), (NORMAL, 0.7)], (NORMAL, 0.3), False, True),
    ([(NORMAL, 0.1)] * 9, (NORMAL, 0.1), True, True),
    ([(NORMAL, 0.15), (NORMAL, 0.55), (NORMAL, 0.2)], (NORMAL, 0.1), True, True),
]


def holding(running: list[tuple[Priority, float]], *, urgent_overtakes: bool) -> Capacity:
    capacity = Capacity(urgent_overtakes=urgent_overtakes)
    for priority, share in running:
        capacity.hold(priority, share)
    return capacity


@pytest.mark.parametrize(("running", "asked", "in_turn", "overtaking"), ROOM)
def test_room(
    running: list[tuple[Priority, float]],
    asked: tuple[Priority, float],
    in_turn: bool,
    overtaking: bool,
) -> None:
    assert holding(running, urgent_overtakes=False).fits(*asked) is in_turn
    assert holding(running, urgent_overtakes=True).fits(*asked) is overtaking


def test_a_released_share_is_free_again() -> None:
    capacity = holding([(NORMAL, 0.7), (CRITICAL, 0.3)], urgent_overtakes=False)
    assert capacity.held == pytest.approx(1.0)
    capacity.release(NORMAL, 0.7)
    assert capacity.held == pytest.approx(0.3)
    assert capacity.fits(NORMAL, 0.7)
    assert not capacity.fits(NORMAL, 0.8)


def test_overtaking_work_is_held_beside_what_it_overtakes() -> None:
    capacity = holding([(BACKGROUND, 1.0), (CRITICAL, 1.0)], urgent_overtakes=True)
    assert capacity.held == 2.0
    capacity.release(BACKGROUND, 1.0)
    assert capacity.held == 1.0
    assert not capacity.fits(BACKGROUND, 0.1)


def test_no_rounding_error_outlives_the_work() -> None:
    capacity = Capacity(urgent_overtakes=False)
    for _ in range(1000):
        for share in (0.1, 0.2, 0.3):
            capacity.hold(NORMAL, share)
        for share in (0.3, 0.1, 0.2):
            capacity.release(NORMAL, share)
    assert capacity.held == 0.0
    assert capacity.fits(NORMAL, 1.0)


class Device:
    """Starts what fits, as an engine does: each batch holds its model's share."""

    def __init__(self, line: Line, shares: dict[str, float], *, urgent_overtakes: bool) -> None:
        self.line = line
        self.shares = shares
        self.capacity = Capacity(urgent_overtakes=urgent_overtakes)

    def fits(self, head: Entry) -> bool:
        return self.capacity.fits(head.priority, self.shares[head.model])

    def start_all(self) -> list[str]:
        started = []
        while batch := self.line.take_batch(0, fits=self.fits):
            head = batch.entries[0]
            self.capacity.hold(head.priority, self.shares[head.model])
            started.append(batch.model)
        self.line.stays_idle(0, fits=self.fits)
        return started


WAITING = (
    Wait("big", CRITICAL, due=1, model="big"),
    Wait("small", CRITICAL, due=2, model="small"),
    Wait("tiny", BACKGROUND, due=3, model="tiny"),
)
SHARES = {"big": 0.8, "small": 0.5, "tiny": 0.1}


def test_a_head_that_does_not_fit_blocks_all_that_is_behind_it() -> None:
    """Otherwise small work would pass by large work for ever."""
    device = Device(Line(*WAITING), SHARES, urgent_overtakes=True)
    assert device.start_all() == ["big"]
    assert device.line.waiting == {"small", "tiny"}
    device.capacity.release(CRITICAL, SHARES["big"])
    assert device.start_all() == ["small", "tiny"]
    assert device.line.waiting == set()


def test_urgent_work_starts_beside_lower_work_where_the_device_lets_it() -> None:
    for overtakes, started in ((True, ["urgent"]), (False, [])):
        line = Line(Wait("u", CRITICAL, model="urgent"), Wait("b", BACKGROUND, model="bulk"))
        device = Device(line, {"urgent": 1.0, "bulk": 1.0}, urgent_overtakes=overtakes)
        device.capacity.hold(BACKGROUND, 1.0)
        assert device.start_all() == started


def test_lower_work_never_starts_beside_urgent_work_that_fills_the_device() -> None:
    line = Line(Wait("b", BACKGROUND, model="bulk"))
    device = Device(line, {"bulk": 0.1}, urgent_overtakes=True)
    device.capacity.hold(CRITICAL, 1.0)
    assert device.start_all() == []


def test_a_blocked_queue_stays_as_it_is() -> None:
    line = Line(*WAITING)
    line.stays_idle(0, fits=nothing)
    line.stays_idle(0, ready=nothing)
    assert line.drain() == ["big", "small", "tiny"]


def test_whether_it_fits_is_asked_of_the_head_only() -> None:
    asked: list[Entry] = []

    def fits(head: Entry) -> bool:
        asked.append(head)
        return True

    line = Line(*(Wait(n, due=d) for d, n in enumerate("abc")), max_rows=3)
    assert line.take(5, fits=fits) == "a b c"
    assert asked == [line.entries["a"]]
