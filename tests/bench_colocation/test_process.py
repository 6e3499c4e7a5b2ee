"""Roles that die, hang or speak out of turn cost a bounded time and leave nothing behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from treadle.bench.colocation.process import RoleError, RoleProcess
from treadle.bench.colocation.roles.channel import Channel

SPEAK = "import json, sys; say = lambda **m: print(json.dumps(m), flush=True)\n"


@pytest.fixture
def started() -> Iterator[list[RoleProcess]]:
    roles: list[RoleProcess] = []
    yield roles
    for role in roles:
        role.kill()


def start(started: list[RoleProcess], script: str) -> RoleProcess:
    role = RoleProcess("role", [sys.executable, "-c", SPEAK + script], os.environ)
    started.append(role)
    return role


def test_orders_and_events(started: list[RoleProcess]) -> None:
    role = start(started, "order = json.loads(input()); say(event='result', got=order['what'])")
    role.tell("go", what=5)
    assert role.expect("result", 30)["got"] == 5


def test_one_that_dies_is_known_with_its_last_words(started: list[RoleProcess]) -> None:
    role = start(started, "print('no memory', file=sys.stderr); sys.exit(7)")
    with pytest.raises(RoleError, match=r"(?s)died before 'ready' \(exit code 7\).*no memory"):
        role.expect("ready", 30)


def test_one_that_hangs_is_given_up(started: list[RoleProcess]) -> None:
    role = start(started, "input(); input()")
    with pytest.raises(RoleError, match="said no 'ready'"):
        role.expect("ready", 0.2)
    role.kill()
    assert not role.alive


def test_one_that_says_why_it_failed(started: list[RoleProcess]) -> None:
    role = start(started, "say(event='error', reason='no GPU'); input()")
    with pytest.raises(RoleError, match="no GPU"):
        role.expect("ready", 30)


def test_one_that_dies_while_it_is_watched(started: list[RoleProcess]) -> None:
    role = start(started, "sys.exit(3)")
    with pytest.raises(RoleError, match="died while it was measured"):
        role.watch(30)
    silent = start(started, "input()")
    silent.watch(0.05)


def test_an_order_to_a_dead_one_fails(started: list[RoleProcess]) -> None:
    role = start(started, "sys.exit(0)")
    with pytest.raises(RoleError):
        role.expect("ready", 30)
    role.kill()
    with pytest.raises(RoleError):
        role.tell("go")


def test_closing_ends_what_the_role_started(started: list[RoleProcess]) -> None:
    role = start(
        started,
        "import subprocess; child = subprocess.Popen(['sleep', '600'])\n"
        "say(event='ready', child=child.pid); input()",
    )
    child = role.expect("ready", 30)["child"]
    role.close()
    assert not role.alive
    end = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_channel_hears_what_came_in_pieces_and_the_end() -> None:
    inlet, source = os.pipe()
    sink, outlet = os.pipe()
    channel = Channel(inlet, outlet)
    assert not channel.has_order()
    os.write(source, b'{"op": "go"}\n{"op": "st')
    assert channel.hear() == {"op": "go"}
    assert channel.has_order()
    os.write(source, b'op"}\n')
    assert channel.hear() == {"op": "stop"}
    assert not channel.has_order()
    channel.say("ready", value=1)
    assert os.read(sink, 100) == b'{"event": "ready", "value": 1}\n'
    os.close(source)
    assert channel.has_order()
    assert channel.hear() is None
    for descriptor in (inlet, sink, outlet):
        os.close(descriptor)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
