"""``treadle turnstile``: what it shows of a page and of who goes past it."""

from __future__ import annotations

import orjson
import pytest
from tests.turnstile.harness import World
from tests.turnstile.test_turnstile import marker

from treadle.cli import turnstile
from treadle.devices.device import DeviceError, DeviceProcess

STRANGER = DeviceProcess(4_000_001, "stranger", 3 << 30, None, "not asked for")


def test_processes_that_are_not_gated_are_named(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    member = marker(world)
    gated = DeviceProcess(member.pid, "member", None, None, "not told")
    monkeypatch.setenv("TREADLE_TURNSTILE_DIR", str(world.folder))
    monkeypatch.setattr(turnstile, "compute_processes", lambda uuid: [gated, STRANGER])
    turnstile.run(watch=False, as_json=False, knobs=[])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "not gated" in line]
    assert str(STRANGER.pid) in row
    turnstile.run(watch=False, as_json=True, knobs=[])
    (page,) = orjson.loads(capsys.readouterr().out)
    assert page["ungated"] == [{"pid": STRANGER.pid, "name": "stranger", "memory_bytes": 3 << 30}]
    assert page["ungated_unknown"] == ""


def test_it_says_why_they_are_not_known(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(uuid: str) -> list[DeviceProcess]:
        raise DeviceError("no driver here")

    marker(world)
    monkeypatch.setenv("TREADLE_TURNSTILE_DIR", str(world.folder))
    monkeypatch.setattr(turnstile, "compute_processes", fails)
    turnstile.run(watch=False, as_json=False, knobs=[])
    assert "no driver here" in capsys.readouterr().out
    turnstile.run(watch=False, as_json=True, knobs=[])
    (page,) = orjson.loads(capsys.readouterr().out)
    assert (page["ungated"], page["ungated_unknown"]) == (None, "no driver here")
