"""Finding the devices of this machine, and saying why one is not there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from treadle.clock import Clock, SystemClock
from treadle.devices.cpu import CPUDevice
from treadle.devices.device import DeviceError, MonitoredDevice
from treadle.devices.mechanisms import Host
from treadle.devices.nvidia import load, nvidia_gpus
from treadle.devices.simulated import SimulatedGPU
from treadle.errors import ConfigError

SIMULATED = "TREADLE_SIMULATED_GPUS"
_MOST_SIMULATED = 1024


def find_devices(
    *,
    clock: Clock | None = None,
    host: Host | None = None,
    environment: Mapping[str, str] = os.environ,
    nvml_module: Any = None,
) -> tuple[list[MonitoredDevice], list[str]]:
    """The NVIDIA GPUs, or else the CPU; and the simulated GPUs that the environment asks for.

    Args:
        clock: Whose time the readings have; the machine's unless given.
        host: How to ask this machine for its mechanisms.
        environment: ``TREADLE_SIMULATED_GPUS`` says how many simulated ones are added.
        nvml_module: What stands in for ``pynvml``.

    Returns:
        The devices, each to be closed, and in words why a GPU is not among them.

    Raises:
        ConfigError: If the environment asks for no number of simulated GPUs.
    """
    clock, host = clock or SystemClock(), host or Host()
    simulated = _simulated_count(environment)
    devices: list[MonitoredDevice] = []
    reasons: list[str] = []
    try:
        gpus, reasons = nvidia_gpus(load(nvml_module), clock=clock, host=host)
        devices += gpus
    except DeviceError as error:
        reasons.append(f"no NVIDIA GPU: {error}")
    if not devices:
        devices.append(CPUDevice(clock=clock))
    first = len(devices)
    devices += [SimulatedGPU(clock, index=first + number) for number in range(simulated)]
    return devices, reasons


def _simulated_count(environment: Mapping[str, str]) -> int:
    text = environment.get(SIMULATED, "").strip() or "0"
    if not (text.isascii() and text.isdigit() and int(text) <= _MOST_SIMULATED):
        raise ConfigError(f"{SIMULATED}={text!r}; allowed: 0 to {_MOST_SIMULATED}")
    return int(text)
