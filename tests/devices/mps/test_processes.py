"""Processes are told apart by number and start."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from tests.devices.mps.standin import alive, bystander

from treadle.devices.mps import processes


def test_a_process_is_itself_and_no_other_with_its_number() -> None:
    with bystander() as pid:
        process = processes.identify(pid)
        assert process is not None
        assert processes.lives(process)
        former = replace(process, started=process.started - 1)
        assert not processes.lives(former)
        processes.send(former, signal.SIGKILL)
        assert processes.lives(process)
        assert not processes.wait_gone([process], 0.0)
        processes.send(process, signal.SIGKILL)
        assert processes.wait_gone([process], 30.0)  # although nobody has buried it
        assert processes.identify(pid) is None
    processes.send(process, signal.SIGKILL)


def test_children_are_those_of_one_that_runs() -> None:
    me = processes.identify(os.getpid())
    assert me is not None
    with bystander() as pid:
        assert processes.is_child(pid, me)
        assert pid in {child.pid for child in processes.children(me)}
        assert not processes.is_child(pid, replace(me, started=0))
        assert not processes.children(replace(me, started=0))
        assert not processes.is_child(os.getppid(), me)


def test_processes_are_found_by_what_they_were_started_with() -> None:
    with bystander({"WHOSE": "a test's", "ELSE": ""}) as pid:
        processes.wait_gone([], 0.0)
        while processes.variable(pid, "WHOSE") is None and alive(pid):
            pass  # it is not yet what it is to be
        assert processes.variable(pid, "WHOSE") == "a test's"
        assert processes.variable(pid, "ELSE") == ""
        assert processes.variable(pid, "WHO") is None
        assert [one.pid for one in processes.started_with("WHOSE", "a test's")] == [pid]
    with pytest.raises(OSError, match="No such"):
        processes.variable(pid, "WHOSE")


def test_numbers_mean_something_within_one_epoch() -> None:
    assert processes.epoch() == processes.epoch()
    assert "/" in processes.epoch()
