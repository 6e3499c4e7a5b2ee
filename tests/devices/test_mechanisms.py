"""What can be used here, and why not, as a machine answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pynvml  # type: ignore[import-untyped]
import pytest
from tests.devices.fake_nvml import FakeGPU, FakeNVML

from treadle.devices.device import Mechanism
from treadle.devices.mechanisms import MECHANISMS, GPUFacts, Host, gpu_mechanisms, none_available
from treadle.devices.nvidia import NVML, NvidiaGPU
from treadle.errors import TreadleError

H200: dict[str, Any] = {
    "driver": (580, 159, 4),
    "compute_capability": (9, 0),
    "mig_on": False,
    "gpm": True,
    "fans": 0,
    "power_range_watts": (200.0, 700.0),
}


def host(root: Path, **changes: Any) -> Host:
    """A machine on which everything is there, and this is root."""
    answers: dict[str, Any] = {
        "gate": lambda: Path("/lib/gate.so"),
        "mps_control": lambda: Path("/usr/bin/nvidia-cuda-mps-control"),
        "driver_has": lambda function: True,
        "is_root": True,
        "environment": lambda name: None,
        "root": root,
    }
    return Host(**answers | changes)


def asked(facts: dict[str, Any], machine: Host) -> dict[str, Mechanism]:
    found = gpu_mechanisms(GPUFacts(**H200 | facts), machine)
    assert tuple(one.name for one in found) == MECHANISMS
    assert all(one.reason for one in found)
    return {one.name: one for one in found}


def test_a_machine_with_everything_has_all_but_fans(tmp_path: Path) -> None:
    found = asked({}, host(tmp_path))
    assert [name for name, one in found.items() if not one.available] == ["fan control"]
    assert found["fan control"].reason == "the GPU has no fans of its own"


def no_gate() -> Path:
    raise TreadleError("the launch gate is missing: no compiler")


def no_mps() -> Path:
    raise TreadleError("MPS: no nvidia-cuda-mps-control on the PATH")


# facts, changes to the host, mechanism, its reason
MISSING: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"gate": no_gate}, "launch gate", "no compiler"),
    ({}, {"gate": no_gate}, "memory limits", "no compiler"),
    ({}, {"driver_has": lambda f: None}, "launch gate", "libcuda.so.1"),
    ({}, {"driver_has": lambda f: None}, "stream priority", "libcuda.so.1"),
    ({}, {"driver_has": lambda f: None}, "green contexts", "libcuda.so.1"),
    ({}, {"driver_has": lambda f: False}, "process checkpoint", "has no cuCheckpointProcessLock"),
    ({"driver": (550, 54)}, {}, "process checkpoint", "the driver is 550.54; it takes 570"),
    ({"driver": (535,)}, {}, "green contexts", "the driver is 535; it takes 550"),
    ({"driver": ()}, {}, "green contexts", "the driver is unknown"),
    ({}, {"mps_control": no_mps}, "MPS", "no nvidia-cuda-mps-control on the PATH"),
    ({"mig_on": True}, {}, "MPS", "with MIG on"),
    ({"compute_prohibited": True}, {}, "MPS", "prohibits"),
    ({"compute_capability": (6, 1)}, {}, "MPS", "before Volta"),
    ({"mig_on": None, "mig_reason": "no such thing"}, {}, "MIG", "no such thing"),
    ({}, {"is_root": False}, "MIG", "needs root"),
    ({}, {"is_root": False}, "power limit", "200 to 700 W, but to change it needs root"),
    ({"power_range_watts": None, "power_reason": "not told"}, {}, "power limit", "not told"),
    ({"fans": 2}, {"is_root": False}, "fan control", "2 fans, but to change it needs root"),
    ({"gpm": False, "gpm_reason": "begins with Hopper"}, {}, "GPM", "begins with Hopper"),
]


@pytest.mark.parametrize(("facts", "changes", "name", "reason"), MISSING)
def test_what_is_not_available_says_why(
    tmp_path: Path, facts: dict[str, Any], changes: dict[str, Any], name: str, reason: str
) -> None:
    one = asked(facts, host(tmp_path, **changes))[name]
    assert not one.available
    assert reason in one.reason


def test_a_running_mps_daemon_is_seen_and_rules_out_checkpoints(tmp_path: Path) -> None:
    pipe = tmp_path / "tmp/nvidia-mps/control"
    pipe.parent.mkdir(parents=True)
    pipe.touch()
    found = asked({}, host(tmp_path, mps_control=no_mps))
    assert found["MPS"].available
    assert str(pipe) in found["MPS"].reason
    assert not found["process checkpoint"].available


def test_the_daemons_pipe_is_looked_for_where_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    machine = host(tmp_path, environment={"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}.get)
    assert str(tmp_path / "control") in asked({}, machine)["MPS"].reason


def test_a_gate_that_nobody_looked_for_is_not_known() -> None:
    found = asked({}, Host(driver_has=lambda function: True, mps_control=no_mps))
    assert not found["launch gate"].available
    assert "nobody here looked" in found["launch gate"].reason


def test_none_is_available_for_one_reason() -> None:
    found = none_available("because")
    assert [(one.name, one.available, one.reason) for one in found] == [
        (name, False, "because") for name in MECHANISMS
    ]


def of(gpu: FakeGPU, machine: Host, **fails: int) -> dict[str, Mechanism]:
    library = FakeNVML(gpu)
    library.fails = fails
    device = NvidiaGPU(NVML(library), 0, host=machine)
    found = {one.name: one for one in device.mechanisms()}
    assert not [call for call in library.calls if "Set" in call and "EventSet" not in call]
    return found


def test_a_gpu_is_asked_for_its_facts_and_nothing_is_set(tmp_path: Path) -> None:
    found = of(FakeGPU(fans=(30, 30)), host(tmp_path))
    assert all(one.available for one in found.values()), found
    assert found["power limit"].reason.startswith("the board takes 200 to 700 W")
    assert "2 fans" in found["fan control"].reason


def test_a_gpu_without_gpm_or_with_mig_says_so(tmp_path: Path) -> None:
    assert "Hopper" in of(FakeGPU(gpm_supported=False), host(tmp_path))["GPM"].reason
    assert "with MIG on" in of(FakeGPU(mig=True), host(tmp_path))["GPM"].reason
    assert "does not support" in of(FakeGPU(mig=None), host(tmp_path))["MIG"].reason


def test_what_may_not_be_asked_is_a_reason(tmp_path: Path) -> None:
    fails = {
        "nvmlDeviceGetPowerManagementLimitConstraints": pynvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetNumFans": pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    }
    found = of(FakeGPU(), host(tmp_path), **fails)
    assert "may not ask" in found["power limit"].reason
    assert "too old" in found["fan control"].reason
