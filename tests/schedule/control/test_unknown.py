"""Where latencies are missing, old or not enough, nothing is given beyond the usual."""

from __future__ import annotations

from tests.schedule.control.drive import OBJECTIVE, STEP, Driver, counted

from treadle.schedule.control import Standing
from treadle.types import LatencyKind, LatencyWindow


def missing(driver: Driver, reason: str) -> LatencyWindow:
    return LatencyWindow(at=driver.now + STEP, reason=reason)


def test_latencies_that_were_never_there_leave_the_knobs_as_usual() -> None:
    driver = Driver()
    for _ in range(100):
        driver.step(missing(driver, "the address does not answer"))
    assert driver.level == 0.5
    assert "the address does not answer" in driver.controller.last.reason


def test_stale_latencies_take_back_what_was_given() -> None:
    driver = Driver()
    driver.run(60)
    assert driver.level == 1.0
    for _ in range(59):
        driver.step(missing(driver, "no answer"))
    assert driver.level == 1.0  # one failed reading is no reason to doubt
    for _ in range(3):
        driver.step(missing(driver, "no answer"))
    assert driver.level == 0.5
    assert "no answer" in driver.controller.last.reason


def test_without_latencies_a_protected_server_stays_so_for_a_while() -> None:
    driver = Driver()
    driver.run(1, late_every=2)
    assert driver.level == 0.0
    for _ in range(400):  # 20 s
        driver.step(None)
    assert driver.level == 0.0
    for _ in range(1200):
        driver.step(None)
    assert driver.level == 0.5


def test_a_server_that_nobody_asks_loses_what_was_given_after_a_while() -> None:
    driver = Driver()
    driver.run(60)
    driver.run(25, count=0)
    assert driver.level == 1.0
    driver.run(10, count=0)
    assert driver.level == 0.5
    assert "no request for" in driver.controller.last.reason


def test_buckets_that_cannot_tell_are_no_ground_to_give() -> None:
    driver = Driver()
    for _ in range(200):
        window = LatencyWindow(
            at=driver.now + STEP,
            window_seconds=STEP,
            kind=LatencyKind.HISTOGRAM,
            count=20,
            over=(0, 20),
            near=(20, 20),
        )
        driver.step(window)
    assert driver.level == 0.5
    assert "buckets cannot tell" in driver.controller.last.reason


def summary(driver: Driver, p99: float) -> LatencyWindow:
    return LatencyWindow(
        at=driver.now + STEP,
        window_seconds=STEP,
        kind=LatencyKind.SUMMARY,
        count=20,
        p99_seconds=p99,
        reason="a summary does not count what is late",
    )


def test_a_summary_can_take_back_but_not_give_beyond_the_usual() -> None:
    driver = Driver()
    for _ in range(2000):
        driver.step(summary(driver, OBJECTIVE / 2))
    assert driver.level == 0.5
    for _ in range(20):
        driver.step(summary(driver, OBJECTIVE * 2))
    assert driver.level < 0.5
    assert any("the server's own window" in one.reason for one in driver.decisions if one.changed)


def test_a_summary_never_shows_that_an_objective_cannot_be_met() -> None:
    driver = Driver()
    for _ in range(2000):
        driver.step(summary(driver, OBJECTIVE * 2))
    assert driver.level == 0.0
    assert driver.impossible == ""


def test_a_mean_does_not_steer() -> None:
    driver = Driver()
    for _ in range(50):
        window = LatencyWindow(
            at=driver.now + STEP,
            window_seconds=STEP,
            kind=LatencyKind.MEAN,
            count=20,
            mean_seconds=OBJECTIVE * 3,
            reason="only a mean can be had",
        )
        driver.step(window)
    assert driver.level == 0.5
    assert driver.controller.report().tasks[0].standing is Standing.UNKNOWN
    assert "only a mean" in driver.controller.last.reason


def test_one_task_without_latencies_does_not_keep_another_from_being_protected() -> None:
    driver = Driver()
    for _ in range(20):
        driver.step(missing(driver, "no answer"), counted(driver.now + STEP, 50, 20))
    assert driver.level == 0.0
