"""Why an NVIDIA GPU's clocks are held down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from treadle.devices.nvidia.library import NVML, MissingError

_SW_POWER_CAP = 0x4
_HW_SLOWDOWN = 0x8
_SW_THERMAL = 0x20
_HW_THERMAL = 0x40
_HW_POWER_BRAKE = 0x80
_POWER = _SW_POWER_CAP | _HW_POWER_BRAKE
_THERMAL = _SW_THERMAL | _HW_THERMAL
_OTHER = 0x2 | 0x10 | 0x100 | 0x200 | 0x400
"""Clocks set by the user, sync boost, display, board limit, reliability. An idle GPU's is 1."""


@dataclass(frozen=True, slots=True)
class Held:
    """What holds the clocks down."""

    power: bool
    thermal: bool
    other: bool

    @property
    def words(self) -> str:
        """For a person; empty where nothing does."""
        named = (("power", self.power), ("heat", self.thermal), ("another reason", self.other))
        return ", ".join(name for name, on in named if on)


class Throttle:
    """Reads the driver's mask of reasons, under its new or its old name."""

    def __init__(self, nvml: NVML, gpu: Any) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._function = "nvmlDeviceGetCurrentClocksEventReasons"

    def read(self) -> Held:
        """The reasons now.

        Raises:
            DeviceError: If the driver does not tell.
        """
        try:
            mask = int(self._nvml.call(self._function, self._gpu))
        except MissingError:
            self._function = "nvmlDeviceGetCurrentClocksThrottleReasons"  # before driver 535
            mask = int(self._nvml.call(self._function, self._gpu))
        if mask >= 1 << 32:
            raise MissingError("the driver says that the reasons are not available")
        # The hardware's slowdown comes with its reason; alone, it is another one.
        slowed = bool(mask & _HW_SLOWDOWN and not mask & (_HW_THERMAL | _HW_POWER_BRAKE))
        return Held(bool(mask & _POWER), bool(mask & _THERMAL), slowed or bool(mask & _OTHER))
