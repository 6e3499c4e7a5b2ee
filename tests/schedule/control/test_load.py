"""A load that rises is no longer the one that was learned under."""

from __future__ import annotations

from tests.schedule.control.drive import OBJECTIVE, STEP, Driver, counted

from treadle.schedule.control import Action, Decision, GateView, Observation, TaskLatency
from treadle.types import Objective


def busy(driver: Driver, seconds: float, *fractions: float | None) -> list[Decision]:
    """Requests that are all in time, while urgent work is busy for these parts in turn."""
    decisions = []
    for step in range(round(seconds / STEP)):
        driver.now += STEP
        task = TaskLatency(
            task="server",
            objective=Objective(p99_seconds=OBJECTIVE),
            latency=counted(driver.now, 10),
        )
        gate = GateView(critical_busy_fraction=fractions[step % len(fractions)])
        observation = Observation(tasks=(task,), gate=gate, neighbours=("training",))
        driver.controller.step(observation, driver.now)
        decisions.append(driver.controller.last)
    return decisions


def test_what_was_given_under_less_load_is_taken_back_before_anything_is_late() -> None:
    driver = Driver()
    assert busy(driver, 60, 0.15)[-1].level == 1.0
    after = busy(driver, 1, 0.75)
    fallen = [one for one in after if one.changed]
    assert fallen[0].action is Action.FALL_BACK
    assert fallen[0].level == 0.5
    assert "load rose from" in fallen[0].reason


def test_lower_work_that_is_there_but_idle_is_given_nothing() -> None:
    driver = Driver()
    for _ in range(1200):
        driver.now += STEP
        task = TaskLatency(
            task="server",
            objective=Objective(p99_seconds=OBJECTIVE),
            latency=counted(driver.now, 10),
        )
        gate = GateView(background_fraction=0.0, waiting=0)
        observation = Observation(tasks=(task,), gate=gate, neighbours=("training",))
        driver.controller.step(observation, driver.now)
    assert driver.level == 0.5
    assert "nobody to give to" in driver.controller.last.reason


def test_once_the_new_load_is_known_more_is_given_again() -> None:
    driver = Driver()
    busy(driver, 60, 0.15)
    assert busy(driver, 60, 0.75)[-1].level == 1.0


def test_a_load_that_is_uneven_or_falls_or_is_not_known_is_none_that_rises() -> None:
    for fractions in ((0.0, 0.6), (None, 0.3), (float("nan"),), (2.0, -1.0)):
        driver = Driver()
        assert busy(driver, 60, *fractions)[-1].level == 1.0
    driver = Driver()
    busy(driver, 60, 0.9)
    assert not any(one.changed for one in busy(driver, 10, 0.1))
