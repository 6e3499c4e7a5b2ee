"""What is read of an NVIDIA GPU, each figure in the cheapest way that is not stale.

Never called, since they block or cost too much where they are read often:
``nvmlDeviceGetPcieThroughput`` (21 ms), the sample buffer of the utilisation (2.6 ms), the
violation counters and the temperature thresholds (0.6 ms each).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from treadle.clock import Clock
from treadle.devices.catalogue import GPU_SOURCES, FunctionSource
from treadle.devices.device import DeviceError, DeviceGoneError, Reading, Source
from treadle.devices.nvidia.counters import Activity, PowerSamples, Unwrapped, missing, percent
from treadle.devices.nvidia.library import NVML, MissingError, number
from treadle.devices.nvidia.processes import ProcessReader
from treadle.devices.nvidia.throttle import Throttle

_UTILIZATION_WINDOW_SECONDS = 0.2
_ALL_LINKS = 0xFFFFFFFF
_MEGA = 1e6
_MAX_CELSIUS = 150
_LINK_FIELDS = (
    ("pcie_sent", "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", 0, 1),
    ("pcie_received", "NVML_FI_DEV_PCIE_COUNT_RX_BYTES", 0, 1),
    ("pcie_replays", "NVML_FI_DEV_PCIE_REPLAY_COUNTER", 0, 1),
    ("nvlink_sent", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", _ALL_LINKS, 1024),
    ("nvlink_received", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", _ALL_LINKS, 1024),
)
"""Metric, field, scope, bytes in a unit."""


class Sources:
    """The sources of one GPU, and what they keep between reads."""

    def __init__(
        self,
        nvml: NVML,
        gpu: Any,
        *,
        clock: Clock,
        processes: ProcessReader,
        throttle: Throttle,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._clock = clock
        self._processes = processes
        self._throttle = throttle
        self._power = PowerSamples(nvml, gpu, clock, wall)
        self._activity = Activity(nvml, gpu, clock)
        self._unwrapped = Unwrapped()
        self._failed: list[DeviceError] = []

    def table(self) -> Sequence[Source]:
        readers = {
            "nvml.utilization": self._utilization,
            "nvml.power-samples": self._power.read,
            "nvml.gpm": self._activity.read,
            "nvml.clocks": self._clocks,
            "nvml.memory": self._memory,
            "nvml.temperature": self._temperature,
            "nvml.links": self._links,
            "nvml.processes": lambda: [self._one("processes", self._processes.count)],
            "nvml.board": self._board,
            "nvml.energy": lambda: [
                self._one(
                    "energy", lambda: self._number("nvmlDeviceGetTotalEnergyConsumption") / 1e3
                )
            ],
        }
        return [
            FunctionSource(spec, partial(self._whole, readers[spec.name]))
            for spec in GPU_SOURCES.values()
        ]

    def close(self) -> None:
        """Give the driver back what it holds for us."""
        self._activity.close()

    def _whole(self, read: Callable[[], Sequence[Reading]]) -> Sequence[Reading]:
        """A group of figures; calls that failed are an error only if nothing else came."""
        self._failed.clear()
        readings = read()
        if self._failed and all(reading.value is None for reading in readings):
            raise self._failed[0]
        return readings

    def _utilization(self) -> list[Reading]:
        now, metrics = self._clock.now(), ("gpu_utilization", "memory_utilization")
        try:
            rates = self._nvml.call("nvmlDeviceGetUtilizationRates", self._gpu)
        except MissingError as error:
            return missing(metrics, now, str(error))
        window = _UTILIZATION_WINDOW_SECONDS
        return [
            self._one("gpu_utilization", lambda: percent(rates.gpu), window),
            self._one("memory_utilization", lambda: percent(rates.memory), window),
        ]

    def _clocks(self) -> list[Reading]:
        readings = [
            self._one("sm_clock", lambda: self._clock_of("NVML_CLOCK_SM")),
            self._one("memory_clock", lambda: self._clock_of("NVML_CLOCK_MEM")),
            self._one("performance_state", self._performance_state),
        ]
        now = self._clock.now()
        metrics = ("throttled_power", "throttled_thermal", "throttled_other")
        try:
            held = self._throttle.read()
        except MissingError as error:
            return [*readings, *missing(metrics, now, str(error))]
        flags = zip(metrics, (held.power, held.thermal, held.other), strict=True)
        return [*readings, *(Reading(metric, float(on), now, 0.0) for metric, on in flags)]

    def _clock_of(self, domain: str) -> float:
        return self._number("nvmlDeviceGetClockInfo", self._nvml.constant(domain)) * _MEGA

    def _performance_state(self) -> float:
        state = self._number("nvmlDeviceGetPerformanceState")
        if state > 15:
            raise MissingError("the driver does not know its performance state")
        return state

    def _memory(self) -> list[Reading]:
        now, metrics = self._clock.now(), ("memory_used", "memory_free", "memory_reserved")
        try:
            version = self._nvml.constant("nvmlMemory_v2")
            memory = self._nvml.call("nvmlDeviceGetMemoryInfo", self._gpu, version)
        except MissingError as error:
            return missing(metrics, now, str(error))
        return [
            self._one("memory_used", lambda: number(memory.used)),
            self._one("memory_free", lambda: number(memory.free)),
            self._one("memory_reserved", lambda: number(memory.reserved)),
        ]

    def _temperature(self) -> list[Reading]:
        sensor = self._nvml.constant("NVML_TEMPERATURE_GPU")
        return [
            self._one(
                "temperature", lambda: _celsius(self._number("nvmlDeviceGetTemperature", sensor))
            ),
            self._one("memory_temperature", lambda: _celsius(self._memory_temperature())),
        ]

    def _memory_temperature(self) -> float:
        field = self._nvml.constant("NVML_FI_DEV_MEMORY_TEMP")
        (value,) = self._nvml.call("nvmlDeviceGetFieldValues", self._gpu, [field])
        return self._nvml.field(value)

    def _links(self) -> list[Reading]:
        now, nvml = self._clock.now(), self._nvml
        try:
            asked = [(nvml.constant(field), scope) for _, field, scope, _ in _LINK_FIELDS]
            values = nvml.call("nvmlDeviceGetFieldValues", self._gpu, asked)
        except MissingError as error:
            return missing([row[0] for row in _LINK_FIELDS], now, str(error))
        return [
            self._one(metric, partial(self._counter, metric, value, unit))
            for (metric, _, _, unit), value in zip(_LINK_FIELDS, values, strict=True)
        ]

    def _counter(self, metric: str, value: Any, unit_bytes: int) -> float:
        narrow = value.valueType == self._nvml.constant("NVML_VALUE_TYPE_UNSIGNED_INT")
        count = self._unwrapped.value(metric, self._nvml.field(value), is_32_bit=narrow)
        return count * unit_bytes

    def _board(self) -> list[Reading]:
        return [
            self._one("power_limit", lambda: self._number("nvmlDeviceGetEnforcedPowerLimit") / 1e3),
            self._one("fan_speed", self._fan_speed),
            self._one("ecc_corrected", lambda: self._ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED")),
            self._one("ecc_uncorrected", lambda: self._ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED")),
            self._one("encoder_utilization", lambda: self._engine("Encoder")),
            self._one("decoder_utilization", lambda: self._engine("Decoder")),
            self._one("bar1_used", self._bar1),
        ]

    def _bar1(self) -> float:
        return number(self._nvml.call("nvmlDeviceGetBAR1MemoryInfo", self._gpu).bar1Used)

    def _fan_speed(self) -> float:
        fans = int(self._number("nvmlDeviceGetNumFans"))
        if not fans:
            raise MissingError("it has no fans of its own")
        speeds = [self._number("nvmlDeviceGetFanSpeed_v2", fan) for fan in range(fans)]
        # A fan may be told to go beyond what it was made for.
        return min(100.0, max(speeds)) / 100

    def _ecc(self, kind: str) -> float:
        constant = self._nvml.constant
        return self._number(
            "nvmlDeviceGetTotalEccErrors", constant(kind), constant("NVML_VOLATILE_ECC")
        )

    def _engine(self, name: str) -> float:
        return percent(self._nvml.call(f"nvmlDeviceGet{name}Utilization", self._gpu)[0])

    def _number(self, function: str, *arguments: Any) -> float:
        return number(self._nvml.call(function, self._gpu, *arguments))

    def _one(self, metric: str, read: Callable[[], float], window_seconds: float = 0.0) -> Reading:
        """One figure, or why there is none; that the whole device is gone goes through."""
        try:
            value = read()
        except DeviceGoneError:
            raise
        except DeviceError as error:
            if not isinstance(error, MissingError):
                self._failed.append(error)
            return Reading(metric, None, self._clock.now(), 0.0, str(error))
        return Reading(metric, value, self._clock.now(), window_seconds)


def _celsius(value: float) -> float:
    if value > _MAX_CELSIUS:
        raise MissingError(f"the driver answers {value:g} degrees, which cannot be")
    return value
