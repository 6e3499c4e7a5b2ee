"""What a supervisor does while its job runs, and at its end."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from .harness import SPAWNER, Watched, is_alive, state_of, until

FOREVER = "sleep 1000"


def numbers(watched: Watched) -> list[int]:
    return [int(word) for word in watched.output.split()]


async def test_output_and_errors_come_in_their_order(watched: Watched) -> None:
    await watched.run("sh", "-c", "for i in 1 2 3; do echo out $i; echo err $i >&2; done")
    assert watched.output.split("\n")[:-1] == [f"{w} {i}" for i in "123" for w in ("out", "err")]


async def test_output_of_any_bytes_is_kept(watched: Watched) -> None:
    await watched.run("printf", r"\000\377\n")
    assert (watched.folder / "log").read_bytes() == b"\0\xff\n"


async def test_of_too_much_output_the_newest_is_kept(watched: Watched) -> None:
    await watched.run("seq", "100000", log_bytes=8192)
    found = watched.output.split()
    assert found[-1] == "100000"
    assert found[1:] == [str(n) for n in range(100001 - len(found[1:]), 100001)]
    sizes = [(watched.folder / name).stat().st_size for name in ("log", "log.1")]
    assert max(sizes) <= 4096
    assert sum(sizes) > 4096


async def test_everything_is_in_the_log_when_it_is_over(watched: Watched) -> None:
    await watched.run("seq", "20000")
    assert numbers(watched) == [*range(1, 20001)]


async def test_it_says_that_the_job_runs_and_how_it_ended(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    pid = await watched.is_running()
    watched.attempt.order(do="end", reason="enough")
    ending = await watched.end()
    assert not is_alive(pid)
    assert (ending.signal, ending.told, ending.reason) == (15, True, "enough")
    assert (await watched.heard("ended"))["signal"] == 15


async def test_who_comes_later_is_told_how_it_is(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    await watched.is_running()
    watched.attempt.order(do="stop")
    await watched.heard("stopped")
    with await watched.client() as client:
        hello = json.loads(client.recv(4096))
        assert (hello["event"], hello["stopped"]) == ("running", True)
        client.sendall(b'{"do": "end", "reason": "by another"}\n')
        assert (await watched.end()).reason == "by another"


async def test_a_job_is_stopped_and_goes_on(watched: Watched) -> None:
    watched.start("sh", "-c", f"{FOREVER} & echo $$ $!; wait; echo over")
    await watched.is_running()
    await until(lambda: len(watched.output.split()) == 2, "it has started its child")
    both = numbers(watched)
    watched.attempt.order(do="stop")
    await watched.heard("stopped")
    await until(lambda: [state_of(pid) for pid in both] == ["T", "T"], "all of it stands still")
    watched.attempt.order(do="continue")
    await watched.heard("continued")
    await until(lambda: [state_of(pid) for pid in both] == ["S", "S"], "all of it goes on")
    os.kill(both[1], signal.SIGTERM)
    assert (await watched.end()).exit_code == 0
    assert watched.output.endswith("over\n")


async def test_a_job_that_stands_still_can_be_ended(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    await watched.is_running()
    watched.attempt.order(do="stop")
    await watched.heard("stopped")
    watched.attempt.order(do="end", reason="enough")
    assert (await watched.end()).signal == 15


async def test_what_is_to_end_is_not_stopped(watched: Watched) -> None:
    watched.start("sh", "-c", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done")
    await watched.has_written("ready")
    await watched.is_running()
    watched.attempt.order(do="end", reason="enough")
    await watched.has_written("asked")
    watched.attempt.order(do="stop")
    watched.attempt.order(do="end", reason="again", grace_seconds=0)
    ending = await watched.end()
    assert (ending.signal, ending.reason) == (9, "enough")
    assert "stopped" not in [event["event"] for event in watched.events]


async def test_a_job_may_end_as_it_likes_within_its_grace(watched: Watched) -> None:
    script = "trap 'echo saved; exit 7' TERM; echo ready; while :; do sleep 0.01; done"
    watched.start("sh", "-c", script)
    await watched.has_written("ready")
    await watched.is_running()
    watched.attempt.order(do="end", reason="enough")
    ending = await watched.end()
    assert (ending.exit_code, ending.signal, ending.told) == (7, None, True)
    assert watched.output.endswith("saved\n")


async def test_a_job_that_does_not_listen_is_killed_after_its_grace(watched: Watched) -> None:
    script = "trap 'echo no' TERM; echo ready; while :; do sleep 0.01; done"
    watched.start("sh", "-c", script, grace=0.3)
    await watched.has_written("ready")
    await watched.is_running()
    watched.attempt.order(do="end", reason="enough")
    ending = await watched.end()
    assert (ending.signal, ending.told) == (9, True)
    assert "no\n" in watched.output


async def test_a_job_that_forks_away_is_ended_with_all_of_it(watched: Watched) -> None:
    watched.start("sh", "-c", f"setsid sh -c '(setsid {FOREVER}) & echo $!; wait' & echo $!; wait")
    await watched.is_running()
    await until(lambda: len(watched.output.split()) == 2, "it has forked")
    watched.attempt.order(do="end", reason="enough")
    await watched.end()
    assert not any(is_alive(pid) for pid in numbers(watched))


async def test_what_a_job_leaves_running_is_ended_and_counted(watched: Watched) -> None:
    ending = await watched.run("sh", "-c", f"setsid {FOREVER} & echo $!")
    assert (ending.exit_code, ending.told) == (0, False)
    assert ending.reason == "1 processes that it left running were ended"
    assert not is_alive(numbers(watched)[0])


async def test_a_daemon_is_ended_and_counted(watched: Watched) -> None:
    # Its parent and its parent's parent have ended, and its session is its own.
    ending = await watched.run("sh", "-c", f"(setsid sh -c '{FOREVER} >/dev/null 2>&1 & echo $!' )")
    assert ending.reason == "1 processes that it left running were ended"
    assert not is_alive(numbers(watched)[0])


async def test_what_is_left_running_and_does_not_listen_is_killed(
    watched: Watched, home: Path
) -> None:
    child = home / "child"
    child.write_text(f"trap '' TERM; echo $$; touch {home}/up; while :; do sleep 0.01; done")
    script = f"setsid sh {child} & while [ ! -e {home}/up ]; do sleep 0.01; done; exit 4"
    watched.start("sh", "-c", script, grace=0.3)
    ending = await watched.end()
    assert ending.exit_code == 4
    assert "left running were ended" in ending.reason
    assert not is_alive(numbers(watched)[0])


async def test_children_that_have_ended_by_themselves_are_not_counted(watched: Watched) -> None:
    script = (
        'for i in 1 2 3; do pids="$pids $( (true & echo $!) )"; done\n'
        "for pid in $pids; do while [ -e /proc/$pid ]; do sleep 0.01; done; done"
    )
    ending = await watched.run("sh", "-c", script)
    assert (ending.exit_code, ending.reason) == (0, "")


async def test_what_holds_the_output_open_does_not_hold_up_the_end(watched: Watched) -> None:
    ending = await watched.run("sh", "-c", f"echo before; {FOREVER} & exit 0")
    assert ending.exit_code == 0
    assert watched.output == "before\n"


async def test_a_job_that_closes_its_output_runs_on(watched: Watched, home: Path) -> None:
    await watched.run("sh", "-c", f"exec >&- 2>&-; touch {home}/done; exit 5")
    assert (home / "done").exists()


# Time.


async def test_a_job_over_its_time_limit_is_ended(watched: Watched) -> None:
    ending = await watched.run("sh", "-c", FOREVER, time_limit=0.2)
    assert (ending.signal, ending.told) == (15, True)
    assert ending.reason == "its time limit of 0.2 s was over"


async def test_a_job_within_its_time_limit_is_not_ended(watched: Watched) -> None:
    ending = await watched.run("true", time_limit=1000)
    assert (ending.exit_code, ending.told) == (0, False)


@pytest.mark.parametrize("jump", ["1e9", "-1e9"])
async def test_a_clock_that_is_set_changes_no_time_limit(watched: Watched, jump: str) -> None:
    jumping = (
        "import time, itertools; real, calls = time.time, itertools.count()\n"
        f"time.time = lambda: real() + {jump} * (next(calls) % 2)"
    )
    watched.prepare(watched.task("sh", "-c", "echo whole", time_limit=1000))
    assert watched.run_program(jumping).returncode == 0
    ending = watched.attempt.ending()
    assert ending is not None
    assert (ending.exit_code, watched.output) == (0, "whole\n")
    limited = Watched(watched.folder.with_name("2"), watched.mark.partition("=")[2])
    limited.prepare(limited.task("sh", "-c", FOREVER, time_limit=0.2))
    assert limited.run_program(jumping).returncode == 0
    ending = limited.attempt.ending()
    assert ending is not None
    assert ending.reason == "its time limit of 0.2 s was over"


# Signals.


@pytest.mark.parametrize("name", ["USR1", "USR2", "HUP", "INT"])
async def test_signals_are_handed_on_to_the_job(watched: Watched, name: str) -> None:
    script = f"trap 'echo got {name}; exit 5' {name}; echo ready; while :; do sleep 0.01; done"
    watched.start("sh", "-c", script)
    await watched.has_written("ready")
    os.kill(await watched.supervisor(), signal.Signals[f"SIG{name}"])
    assert (await watched.end()).exit_code == 5
    assert f"got {name}" in watched.output


async def test_a_supervisor_that_is_told_to_end_ends_its_job_first(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    pid = await watched.is_running()
    os.kill(await watched.supervisor(), signal.SIGTERM)
    ending = await watched.end()
    assert (ending.signal, ending.told, ending.interrupted) == (15, True, True)
    assert ending.reason == "its supervisor was told to end, as when the machine is shut down"
    assert not is_alive(pid)


async def test_a_job_that_hears_of_the_end_before_its_supervisor_is_interrupted(
    watched: Watched,
) -> None:
    # It leaves one behind that takes its time: the supervisor is still there to be told.
    left = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    watched.start("sh", "-c", f'sh -c "{left}" & wait')
    pid = await watched.is_running()
    await watched.has_written("ready")
    os.kill(pid, signal.SIGTERM)
    await until(lambda: not is_alive(pid), "it has ended")
    os.kill(await watched.supervisor(), signal.SIGTERM)
    with await watched.client() as client:
        client.sendall(b'{"do": "end", "reason": "now", "grace_seconds": 0}\n')
        ending = await watched.end()
    assert (ending.signal, ending.interrupted) == (15, True)


async def test_a_job_that_had_finished_was_not_interrupted(watched: Watched) -> None:
    left = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    script = f'sh -c "{left}" & read line < fifo; exit 0'
    os.mkfifo(watched.folder.parent / "fifo")
    watched.start("sh", "-c", script, cwd=str(watched.folder.parent))
    pid = await watched.is_running()
    await watched.has_written("ready")
    (watched.folder.parent / "fifo").write_text("go\n")
    await until(lambda: not is_alive(pid), "it has ended")
    os.kill(await watched.supervisor(), signal.SIGTERM)
    with await watched.client() as client:
        client.sendall(b'{"do": "end", "reason": "now", "grace_seconds": 0}\n')
        ending = await watched.end()
    assert (ending.exit_code, ending.told, ending.interrupted) == (0, False, False)


# Those who talk to it.


@pytest.mark.parametrize(
    "words",
    [
        b"nonsense\n",
        b"[1]\n7\nnull\n",
        b"{}\n",
        b'{"do": "dance"}\n',
        b'{"do": "end"}\n',
        b'{"do": {}}\n',
        b"\xff\xfe\0\n",
        b"x" * 100_000,
    ],
)
async def test_nonsense_is_not_listened_to(watched: Watched, words: bytes) -> None:
    watched.start("sh", "-c", FOREVER)
    await watched.is_running()
    with await watched.client() as client:
        try:
            client.sendall(words)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
        except OSError:
            pass  # it has hung up
    watched.attempt.order(do="end", reason="enough")
    assert (await watched.end()).reason == "enough"


async def test_who_hangs_up_while_others_are_told_does_no_harm(watched: Watched) -> None:
    watched.start("sh", "-c", FOREVER)
    await watched.is_running()
    for times in range(1, 30):
        gone = [await watched.client() for _ in range(3)]
        for client in gone:
            client.sendall(b'{"do": "stop"}\n')
            client.close()
        watched.attempt.order(do="stop")
        await watched.heard("stopped", times)
    watched.attempt.order(do="end", reason="enough")
    assert (await watched.end()).reason == "enough"


async def test_nobody_needs_to_listen(watched: Watched) -> None:
    watched.attempt.start(watched.task("sh", "-c", "echo done"), SPAWNER)
    await until(lambda: "ended.json" in watched.names(), "it ends by itself")
    watched.follow()
    assert (await watched.end()).exit_code == 0
