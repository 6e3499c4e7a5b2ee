"""A node whose job database is full, spoilt, or another's."""

from __future__ import annotations

import contextlib
import signal
import sqlite3

from tests.node.conftest import MakeHome, StartNode
from tests.node.nodes import Home, wait_until

from .conftest import MakeDisk
from .nodes import JOBS, body, ready

FOREVER = "sleep 1000"


def test_jobs_are_switched_off(start_node: StartNode) -> None:
    node = start_node("[jobs]\nenabled = false\n")
    answer = node.local.get(JOBS)
    assert answer.status_code == 503
    assert answer.json()["error"] == "this node takes no jobs: jobs.enabled is false"


def test_a_database_that_cannot_be_used_is_said_and_models_are_served(
    start_node: StartNode,
) -> None:
    def spoil(home: Home) -> None:
        folder = home.folder / "state" / "jobs"
        folder.mkdir(parents=True)
        (folder / "jobs.db").write_text("no database " * 100)

    node = start_node("", prepare=spoil)
    wait_until(lambda: "not a database" in node.status()["jobs"]["trouble"], "it is said")
    assert node.local.get(JOBS).status_code == 503


def test_a_second_node_does_not_run_the_same_queue_until_the_first_has_ended(
    make_home: MakeHome,
) -> None:
    home = make_home()
    running = home.up()
    try:
        running.wait_until_started()
        first = ready(running)
        number = first.one(f"{FOREVER} & wait")
        other_home = make_home("", {"TREADLE_STATE_DIR": str(home.folder / "state")})
        other = other_home.up()
        try:
            other.wait_until_started()
            said = f"another node (pid {running.process.pid}) runs the jobs of {first.folder}"
            wait_until(lambda: said in other.status()["jobs"]["trouble"], "it says who has it")
            refused = other.local.post(JOBS, json=body("true"))
            assert refused.status_code == 503
            assert said in refused.json()["error"]
            running.signal(signal.SIGKILL)
            running.wait_ended()
            second = ready(other)
            second.comes_to(number, "running")
            second.post(f"/{number}/cancel")
            assert second.over(number)["state"] == "cancelled"
        finally:
            other.close()
    finally:
        running.close()


def test_a_disk_that_is_full_is_answered_with_503_and_nothing_accepted_is_lost(
    start_node: StartNode,
) -> None:
    node = ready(start_node(""))
    gate = node.home.folder / "gate"
    numbers = node.submit(
        f"while [ ! -e {gate} ]; do sleep 0.01; done; exit $TREADLE_ARRAY_INDEX", array=[0, 1]
    )
    for number in numbers:
        node.comes_to(number, "running")
    # What another connection does to the database the node's meets as well.
    database = sqlite3.connect(node.folder / "jobs.db", isolation_level=None)
    for what in ("INSERT", "UPDATE"):
        database.execute(
            f"CREATE TRIGGER full_{what} BEFORE {what} ON job "
            "BEGIN SELECT RAISE(ROLLBACK, 'disk is full'); END"
        )
    answer = node.post("", body("true"))
    assert (answer.status_code, "cannot be written" in answer.text) == (503, True)
    gate.touch()
    node.comes_to(numbers[0], "finished")
    node.comes_to(numbers[1], "failed")
    for what in ("INSERT", "UPDATE"):
        database.execute(f"DROP TRIGGER full_{what}")

    def states() -> list[tuple[str]]:
        return database.execute("SELECT state FROM job ORDER BY id").fetchall()

    wait_until(lambda: states() == [("finished",), ("failed",)], "it is written")
    database.close()
    later = node.one("true")
    assert node.over(later)["state"] == "finished"
    assert "cannot be written" in node.node.log.read_text()


def test_a_real_disk_that_is_full(
    start_node: StartNode,
    make_disk: MakeDisk,
) -> None:
    disk = make_disk("size=4m")

    def use_disk(home: Home) -> None:
        (home.folder / "state").mkdir()
        (home.folder / "state" / "jobs").symlink_to(disk)

    node = ready(start_node("", prepare=use_disk))
    gate = node.home.folder / "gate"
    wait = f"while [ ! -e {gate} ]; do sleep 0.01; done"
    running = node.one(f"{wait}; echo end; exit 7")
    waiting = node.one("echo ran", after=[node.one(wait)])
    node.comes_to(running, "running")
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    answers = [node.post("", body("true", env={"A": "x" * 100_000})) for _ in range(5)]
    assert {answer.status_code for answer in answers} == {503}
    gate.touch()
    node.comes_to(running, "failed")
    filler.unlink()
    assert node.over(running)["exit_code"] == 7
    assert node.over(waiting)["state"] == "finished"
    assert node.log(waiting) == b"ran\n"
    assert [job["id"] for job in node.get().json()["jobs"]] == [3, 2, 1]
