"""An objective that cannot be met is said to be so, and background work is not starved for it."""

from __future__ import annotations

import itertools

from tests.schedule.control.drive import Driver, counted

from treadle.schedule.control import Action, Controller, Knobs, Observation, TaskLatency
from treadle.types import Objective, Priority


def test_missed_even_alone_is_reported_with_what_it_takes() -> None:
    driver = Driver()
    driver.run(20, late_every=3, p99=0.0142)
    assert driver.impossible.startswith("cannot be met: alone it takes 14.2 ms")
    assert "10 ms promised" in driver.impossible
    assert "cannot be met" in driver.controller.last.reason


def test_to_see_that_background_work_is_stopped_for_seconds_and_then_has_its_duty_again() -> None:
    driver = Driver(minimum_duty_fraction=0.03)
    driver.run(60, late_every=3)
    stopped = [one for one in driver.decisions if one.action is Action.TRY_ALONE]
    assert 0 < len(stopped) * 0.05 <= 10
    assert all(one.settings["duty_fraction"] == 0 for one in stopped)
    assert driver.controller.last.settings["duty_fraction"] == 0.03


def test_it_is_tried_again_ever_more_rarely() -> None:
    driver = Driver()
    driver.run(600, late_every=3)
    tries = [one.at for one in driver.decisions if one.action is Action.TRY_ALONE and one.changed]
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert 2 <= len(waits) <= 4
    assert all(later > 1.5 * earlier for earlier, later in itertools.pairwise(waits))


def test_once_it_is_met_it_is_followed_again() -> None:
    driver = Driver()
    driver.run(20, late_every=3)
    assert driver.impossible
    driver.run(40)
    assert driver.impossible == ""
    assert driver.level >= 0.5


def test_met_alone_but_not_beside_others_is_told_apart() -> None:
    driver = Driver()
    for _ in range(600):
        alone = driver.controller.last.action is Action.TRY_ALONE
        driver.run(0.05, count=20, late_every=0 if alone else 4, p99=0.006 if alone else 0.02)
    assert driver.impossible.startswith("cannot be met beside lower work: alone it takes 6 ms")
    assert driver.controller.last.settings["duty_fraction"] == 0.01


def test_too_few_requests_alone_say_so() -> None:
    driver = Driver()
    for _ in range(600):
        alone = driver.controller.last.action is Action.TRY_ALONE
        driver.run(0.05, count=0 if alone else 20, late_every=4)
    assert "too few requests alone" in driver.impossible


def test_missed_with_nobody_else_there_needs_no_trial() -> None:
    driver = Driver()
    driver.run(20, late_every=3, neighbours=(), p99=0.02)
    assert driver.impossible.startswith("cannot be met: alone it takes 20 ms")
    assert not any(one.action is Action.TRY_ALONE for one in driver.decisions)


def test_a_short_burst_of_misses_is_no_impossibility() -> None:
    driver = Driver()
    driver.run(4, late_every=3)
    driver.run(30)
    assert driver.impossible == ""
    assert not any(one.action is Action.TRY_ALONE for one in driver.decisions)


def test_normal_work_is_not_stopped_to_see_what_critical_work_takes_alone() -> None:
    controller, now = Controller("GPU-0", Knobs()), 100.0
    for _ in range(600):
        now += 0.05
        tasks = tuple(
            TaskLatency(
                task=priority.label,
                priority=priority,
                objective=Objective(p99_seconds=0.01),
                latency=counted(now, 20, late),
            )
            for priority, late in ((Priority.CRITICAL, 5), (Priority.NORMAL, 0))
        )
        controller.step(Observation(tasks=tasks, neighbours=("training",)), now)
        assert controller.last.action is not Action.TRY_ALONE
        assert controller.last.settings["linger_seconds"] == 0.0
    critical, normal = controller.report().tasks
    assert "normal work would have to stop" in critical.impossible
    assert normal.impossible == ""
    assert controller.last.settings["duty_fraction"] == 0.01


def test_late_requests_that_are_over_do_not_hold_background_work_back_for_long() -> None:
    driver = Driver()
    driver.run(20, late_every=3)
    assert driver.impossible
    driver.run(4)
    assert driver.impossible == ""
    driver.run(10)
    assert driver.level >= 0.5
