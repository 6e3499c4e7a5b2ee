"""``treadle devices``: what it shows, with and without GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest
from tests.devices.fake_nvml import FakeGPU, FakeNVML

from treadle.cli import devices
from treadle.cli.exits import Exit
from treadle.clock import ManualClock
from treadle.devices.device import DeviceError, Link, MonitoredDevice
from treadle.devices.find import find_devices
from treadle.devices.mechanisms import MECHANISMS
from treadle.devices.simulated import SimulatedGPU


def show(
    monkeypatch: pytest.MonkeyPatch,
    found: Sequence[MonitoredDevice],
    reasons: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(devices, "find_devices", lambda **_: (list(found), list(reasons)))
    devices.run(as_json=as_json)


def test_gpus_are_shown_with_their_links_and_mechanisms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library = FakeNVML(
        FakeGPU(bus=6, nvlinks=(9,) * 4), FakeGPU(uuid="GPU-2", bus=9, mig=None, nvlinks=(6,) * 4)
    )
    found, reasons = find_devices(clock=ManualClock(), environment={}, nvml_module=library)
    show(monkeypatch, found, reasons)
    out = capsys.readouterr().out
    for text in ("NVIDIA H200", "132", "141.0 GiB", "580.159.04/13.0", "0-3", "1: NVLink x4"):
        assert text in out
    for name in MECHANISMS:
        assert f"\n{name} " in out
    assert library.open_event_sets == 0  # closed


def test_equal_gpus_have_one_table_of_mechanisms(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    equal = [SimulatedGPU(clock, index=index) for index in range(2)]
    show(monkeypatch, [*equal, SimulatedGPU(clock, index=2, mechanisms=["MPS"])])
    out = capsys.readouterr().out
    assert out.count("MECHANISM") == 2
    assert "0 Simulated GPU, 1 Simulated GPU\n" in out


def test_links_of_a_kind_are_shown_together(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = ManualClock()
    gpus = [SimulatedGPU(clock, index=index) for index in range(5)]
    for peer in gpus[1:4]:
        gpus[0].link(peer)
    gpus[0].link(gpus[4], "same host")
    gpus[0].add_link(Link("GPU-unseen", "same host"))
    show(monkeypatch, gpus)
    out = capsys.readouterr().out
    assert "1-3: NVLink x18" in out
    assert "4, GPU-unseen: same host" in out


def test_json_says_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gpu = SimulatedGPU(ManualClock(), host_cores=(0, 1), mechanisms=["GPM"])
    show(monkeypatch, [gpu], ["why not"], as_json=True)
    content: dict[str, Any] = orjson.loads(capsys.readouterr().out)
    (device,) = content["devices"]
    assert content["reasons"] == ["why not"]
    assert (device["kind"], device["cores"], device["host_cores"]) == ("simulated", 132, [0, 1])
    assert [one["name"] for one in device["mechanisms"]] == list(MECHANISMS)
    assert [one["name"] for one in device["mechanisms"] if one["available"]] == ["GPM"]


class Mute(SimulatedGPU):
    """Does not tell its links."""

    def links(self) -> Any:
        raise DeviceError("the links do not answer")


def test_a_device_that_does_not_answer_is_shown_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(monkeypatch, [Mute(ManualClock())])
    out = capsys.readouterr().out
    assert "the links do not answer" in out
    assert "launch gate" in out


class Named(SimulatedGPU):
    """Has a name that looks like markup."""

    @property
    def info(self) -> Any:
        return replace(super().info, name="GPU [bold] [/x]")


def test_a_name_is_printed_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    show(monkeypatch, [Named(ManualClock())])
    assert capsys.readouterr().out.count("GPU [bold] [/x]") == 2


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "treadle", "devices", "--json"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_it_works_on_this_machine_whatever_it_has() -> None:
    done = run(TREADLE_SIMULATED_GPUS="2")
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    content = orjson.loads(done.stdout)
    assert [device["kind"] for device in content["devices"]][-2:] == ["simulated"] * 2
    assert content["devices"][0]["kind"] == "nvidia" or content["reasons"]


def test_a_wrong_number_of_simulated_gpus_is_said() -> None:
    done = run(TREADLE_SIMULATED_GPUS="many")
    assert (done.returncode, done.stdout) == (Exit.CONFIG, "")
    assert done.stderr.startswith("treadle: TREADLE_SIMULATED_GPUS='many'; allowed: 0 to")
