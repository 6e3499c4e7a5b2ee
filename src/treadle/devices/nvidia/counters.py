"""Figures that need a memory of what was read before: samples, windows, counters that wrap."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from treadle.clock import Clock
from treadle.devices.device import DeviceError, Reading
from treadle.devices.nvidia.library import NVML, MissingError, SampleBuffer, number

_POWER_WINDOW_SECONDS = 0.02
GPM_WINDOW_SECONDS = 0.1
"""The driver refreshes its counters so often: a shorter window reads zero, or NaN."""
JITTER_SECONDS = 0.001
"""So much earlier than a window's end is its end: whoever reads once in a window finds one."""

_GPM = MappingProxyType(
    {
        "sm_activity": "NVML_GPM_METRIC_SM_UTIL",
        "sm_occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
        "tensor_activity": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
        "fp16_activity": "NVML_GPM_METRIC_FP16_UTIL",
        "fp32_activity": "NVML_GPM_METRIC_FP32_UTIL",
        "fp64_activity": "NVML_GPM_METRIC_FP64_UTIL",
        "dram_activity": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    }
)


class PowerSamples:
    """Power, out of the driver's buffer of samples: each one once.

    The driver stamps them with the time of day. A reading has the clock's time instead, worked
    out from the age of the sample, so a time of day that is set anew shifts one read at most.
    """

    def __init__(
        self, nvml: NVML, gpu: Any, clock: Clock, wall: Callable[[], float] = time.time
    ) -> None:
        self._nvml = nvml
        self._buffer = SampleBuffer(nvml, gpu, "NVML_TOTAL_POWER_SAMPLES")
        self._clock = clock
        self._wall = wall
        self._seen_us = 0
        self._last: Reading | None = None

    def read(self) -> list[Reading]:
        """The samples since the last read; the last one again where there are none."""
        now, wall = self._clock.now(), self._wall()
        if self._seen_us > wall * 1e6:  # the time of day was set back
            self._seen_us = 0
        fresh: list[Reading] = []
        reason = "the driver has no sample yet"
        try:
            kind, samples = self._buffer.read(self._seen_us)
        except MissingError as error:
            kind, samples, reason = 0, (), str(error)
        for sample in samples:
            stamp = int(sample.timeStamp)
            if stamp <= self._seen_us:
                continue
            self._seen_us = stamp
            at = min(now, now - wall + stamp / 1e6)
            if self._last is not None and at <= self._last.sampled_at:
                continue
            try:
                watts = self._nvml.sample(kind, sample.sampleValue) / 1000
            except MissingError as error:
                reason = str(error)
                continue
            self._last = Reading("power", watts, at, _POWER_WINDOW_SECONDS)
            fresh.append(self._last)
        return fresh or [self._last or Reading("power", None, now, 0.0, reason)]


class Activity:
    """What the parts of the GPU do (GPM), as the mean between two of the driver's samples."""

    def __init__(self, nvml: NVML, gpu: Any, clock: Clock) -> None:
        self._nvml = nvml
        self._gpu = gpu
        self._clock = clock
        self._samples: list[Any] = []
        self._at: float | None = None
        self._last: list[Reading] = []
        self._closed = False

    def read(self) -> Sequence[Reading]:
        """The mean since the last window; the last one again where none is over.

        Raises:
            DeviceError: If the driver fails.
        """
        now = self._clock.now()
        try:
            return self._read(now)
        except MissingError as error:
            return missing(_GPM, now, str(error))

    def close(self) -> None:
        """Give the driver its samples back."""
        self._closed = True
        while self._samples:
            with contextlib.suppress(DeviceError):  # a GPU that is gone takes nothing back
                self._nvml.call("nvmlGpmSampleFree", self._samples.pop())

    def _read(self, now: float) -> Sequence[Reading]:
        if self._closed:
            raise MissingError("it is closed")
        while len(self._samples) < 2:
            self._samples.append(self._nvml.call("nvmlGpmSampleAlloc"))
        if self._at is not None and now - self._at < GPM_WINDOW_SECONDS - JITTER_SECONDS:
            return self._last or missing(_GPM, now, "its first window is not over")
        earlier, later = self._samples
        self._nvml.call("nvmlGpmSampleGet", self._gpu, later)
        self._samples.reverse()
        since, self._at = self._at, now
        if since is None:
            return missing(_GPM, now, "its first window is not over")
        self._last = self._compare(earlier, later, now, now - since)
        return self._last

    def _compare(self, earlier: Any, later: Any, now: float, seconds: float) -> list[Reading]:
        nvml = self._nvml
        asked = nvml.constant("c_nvmlGpmMetricsGet_t")()
        asked.version = nvml.constant("NVML_GPM_METRICS_GET_VERSION")
        asked.numMetrics = len(_GPM)
        asked.sample1, asked.sample2 = earlier, later
        for place, constant in enumerate(_GPM.values()):
            asked.metrics[place].metricId = nvml.constant(constant)
        nvml.call("nvmlGpmMetricsGet", asked)
        readings = []
        for place, metric in enumerate(_GPM):
            answer = asked.metrics[place]
            try:
                if answer.nvmlReturn:
                    raise nvml.error_of(f"GPM of {metric}", int(answer.nvmlReturn))
                value = percent(answer.value)
            except MissingError as error:
                readings.append(Reading(metric, None, now, 0.0, str(error)))
            else:
                readings.append(Reading(metric, value, now, seconds))
        return readings


class Unwrapped:
    """Counters of 32 bits, as if they had no end. Wider ones are passed on."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._added: dict[str, float] = {}

    def value(self, name: str, raw: float, *, is_32_bit: bool) -> float:
        """The counter's value with what it lost by wrapping."""
        last = self._last.get(name, raw)
        # One that falls from below the middle was reset, by a reload of the driver.
        if is_32_bit and raw < last and last >= 1 << 31:
            self._added[name] = self._added.get(name, 0.0) + (1 << 32)
        self._last[name] = raw
        return raw + self._added.get(name, 0.0)


def percent(value: Any) -> float:
    """A percentage of the library as a ratio.

    Raises:
        MissingError: If it is none: above 100 by more than rounding, below 0, or no number.
    """
    ratio = number(value) / 100
    if ratio > 1.01:
        raise MissingError(f"the driver answers {ratio:.0%}, which cannot be")
    return min(1.0, ratio)


def missing(metrics: Sequence[str] | Mapping[str, Any], now: float, reason: str) -> list[Reading]:
    """Every metric without a value, for one reason."""
    return [Reading(metric, None, now, 0.0, reason) for metric in metrics]
