"""A stand-in for ``pynvml``: its constants, structures and errors, and GPUs that tests make up.

What it does not know raises ``AttributeError``, as an older binding would.
"""

from __future__ import annotations

import ctypes
import inspect
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml  # type: ignore[import-untyped]

GIB = 1 << 30
NOT_AVAILABLE = 0xFFFFFFFF


@dataclass(kw_only=True)
class FakeGPU:
    """One GPU; as it stands, much like an H200."""

    uuid: str = "GPU-1"
    bus: int = 6
    gpu: Any = 40
    memory: Any = 10
    sm_clock: Any = 1980
    performance_state: Any = 0
    throttle: int = 1
    total: int = 141 * GIB
    used: Any = 0
    reserved: int = GIB // 2
    temperature: Any = 38
    memory_temperature: Any = 41
    power_samples: list[tuple[int, int]] = field(default_factory=list)
    """Microseconds of the day, milliwatts."""
    energy: Any = 5_000
    fields: dict[int, int] = field(default_factory=dict)
    field_errors: dict[int, int] = field(default_factory=dict)
    fans: tuple[int, ...] = ()
    ecc: tuple[int, int] = (0, 0)
    mig: bool | None = False
    instances: tuple[str, ...] = ()
    gpm: float = 50.0
    gpm_supported: bool = True
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    utilization: list[tuple[int, int, int]] = field(default_factory=list)
    """Pid, microseconds, percent."""
    events: deque[tuple[int, int]] = field(default_factory=deque)
    nvlinks: tuple[int, ...] = ()
    """For each link: the bus of the GPU at its other end, or -1 for a switch."""
    repeats: bool = False
    """Some drivers give samples again that were seen."""
    lost: bool = False


class FakeNVML:
    """The module. ``fails`` maps a function to the error it answers with."""

    def __init__(self, *gpus: FakeGPU, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.gpus = list(gpus)
        self.fails: dict[str, int] = {}
        self.missing: set[str] = set()
        """Functions that this version of the binding does not know."""
        self.cuts_samples = False
        """Whether a place that is too small is filled, instead of refused."""
        self.calls: list[str] = []
        self.open_samples = 0
        self.open_event_sets = 0
        self._clock = clock
        self._initialised = False
        self._buffers: dict[int, Any] = {}
        self._sampled: dict[int, float] = {}
        self._functions: dict[str, Callable[..., Any]] = self._system() | self._figures()
        self._functions |= self._activity() | self._topology() | self._events()

    def __getattr__(self, name: str) -> Any:
        if name == "_nvmlGetFunctionPointer":
            if name in self.missing:
                raise AttributeError(name)
            return self._library_function
        if name.startswith("nvml") and callable(getattr(pynvml, name, None)):
            if name not in self._functions or name in self.missing:
                raise AttributeError(name)
            return lambda *arguments: self._call(name, *arguments)
        return getattr(pynvml, name)

    def _call(self, name: str, *arguments: Any) -> Any:
        self.calls.append(name)
        inspect.signature(getattr(pynvml, name)).bind(*arguments)  # as the real one takes them
        if name in self.fails:
            raise pynvml.NVMLError(self.fails[name])
        if name == "nvmlInit":
            self._initialised = True
            return None
        if not self._initialised:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if arguments and isinstance(arguments[0], FakeGPU) and arguments[0].lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self._functions[name](*arguments)

    def _library_function(self, name: str) -> Callable[..., int]:
        """Of the driver's library, which takes and fills what C does, and answers with a code."""
        assert name == "nvmlDeviceGetSamples", "no other is known beneath the binding"
        if name in self.missing:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return self._samples_in_c

    def _samples_in_c(
        self, gpu: FakeGPU, kind: Any, seen: Any, value_kind: Any, count: Any, place: Any
    ) -> int:
        try:
            found, samples = self._call("nvmlDeviceGetSamples", gpu, kind.value, seen.value)
        except pynvml.NVMLError as error:
            return int(error.value)
        kind_out, count_out = (
            ctypes.cast(out, ctypes.POINTER(ctypes.c_uint)).contents for out in (value_kind, count)
        )
        kind_out.value = found
        room = min(count_out.value, len(place))
        if len(samples) > room and not self.cuts_samples:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        count_out.value = min(room, len(samples))
        for filled, sample in zip(place, samples, strict=False):
            filled.timeStamp = sample.timeStamp
            filled.sampleValue.uiVal = sample.sampleValue.uiVal
        return 0

    def _system(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetCount": lambda: len(self.gpus),
            "nvmlDeviceGetHandleByIndex": self._by_index,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
            "nvmlDeviceGetName": lambda gpu: (
                f"NVIDIA H200 MIG {gpu}" if isinstance(gpu, str) else "NVIDIA H200"
            ),
            "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(
                domain=0, bus=gpu.bus, device=0, busId=f"00000000:{gpu.bus:02X}:00.0"
            ),
            "nvmlDeviceGetNumGpuCores": lambda gpu: 132 * 128,
            "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
            "nvmlDeviceGetComputeMode": lambda gpu: 0,
            "nvmlDeviceGetCpuAffinity": lambda gpu, words: [0b1111] + [0] * (words - 1),
            "nvmlDeviceGetMigMode": self._mig_mode,
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 7,
            "nvmlDeviceGetMigDeviceHandleByIndex": self._instance,
        }

    def _figures(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlDeviceGetUtilizationRates": self._not_with_mig(
                lambda gpu: SimpleNamespace(gpu=gpu.gpu, memory=gpu.memory)
            ),
            "nvmlDeviceGetClockInfo": lambda gpu, kind: (
                gpu.sm_clock if kind == pynvml.NVML_CLOCK_SM else 3201
            ),
            "nvmlDeviceGetPerformanceState": lambda gpu: gpu.performance_state,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: gpu.throttle,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.throttle,
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetBAR1MemoryInfo": lambda gpu: SimpleNamespace(bar1Used=1 << 20),
            "nvmlDeviceGetTemperature": lambda gpu, sensor: gpu.temperature,
            "nvmlDeviceGetSamples": self._samples,
            "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy,
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
            "nvmlDeviceGetPowerManagementLimitConstraints": lambda gpu: [200_000, 700_000],
            "nvmlDeviceGetNumFans": lambda gpu: len(gpu.fans),
            "nvmlDeviceGetFanSpeed_v2": lambda gpu, fan: gpu.fans[fan],
            "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: gpu.ecc[kind],
            "nvmlDeviceGetEncoderUtilization": lambda gpu: [0, 100_000],
            "nvmlDeviceGetDecoderUtilization": lambda gpu: [0, 100_000],
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=pid, usedGpuMemory=nbytes) for pid, nbytes in gpu.processes
            ],
            "nvmlDeviceGetProcessUtilization": self._not_with_mig(self._process_utilization),
        }

    def _activity(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlGpmQueryDeviceSupport": lambda gpu: SimpleNamespace(
                version=1, isSupportedDevice=int(gpu.gpm_supported)
            ),
            "nvmlGpmSampleAlloc": self._gpm_alloc,
            "nvmlGpmSampleFree": self._gpm_free,
            "nvmlGpmSampleGet": self._not_with_mig(self._gpm_sample),
            "nvmlGpmMetricsGet": self._gpm_metrics,
        }

    def _topology(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlDeviceGetNvLinkState": self._link(lambda end: 1),
            "nvmlDeviceGetNvLinkRemoteDeviceType": self._link(lambda end: 2 if end < 0 else 0),
            "nvmlDeviceGetNvLinkRemotePciInfo": self._link(
                lambda end: SimpleNamespace(domain=0, bus=end, device=0)
            ),
            "nvmlDeviceGetP2PStatus": lambda gpu, other, index: 0,
            "nvmlDeviceGetTopologyCommonAncestor": lambda gpu, other: 30,
        }

    def _events(self) -> dict[str, Callable[..., Any]]:
        return {
            "nvmlDeviceGetSupportedEventTypes": lambda gpu: 0x1F,
            "nvmlEventSetCreate": self._event_set,
            "nvmlDeviceRegisterEvents": lambda gpu, kinds, events: events.append(gpu),
            "nvmlEventSetWait_v2": self._wait,
            "nvmlEventSetFree": self._free_event_set,
        }

    def _by_index(self, index: int) -> FakeGPU:
        if self.gpus[index].lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.gpus[index]

    def _by_uuid(self, uuid: str) -> FakeGPU:
        for gpu in self.gpus:
            if gpu.uuid == uuid:
                return gpu
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _mig_mode(self, gpu: FakeGPU) -> list[int]:
        if gpu.mig is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(gpu.mig)] * 2

    def _instance(self, gpu: FakeGPU, index: int) -> str:
        if index >= len(gpu.instances):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.instances[index]

    def _not_with_mig(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(gpu: FakeGPU, *arguments: Any) -> Any:
            if gpu.mig:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return function(gpu, *arguments)

        return guarded

    def _link(self, answer: Callable[[int], Any]) -> Callable[..., Any]:
        def asked(gpu: FakeGPU, link: int) -> Any:
            if link >= len(gpu.nvlinks):
                code = "INVALID_ARGUMENT" if gpu.nvlinks else "NOT_SUPPORTED"
                raise pynvml.NVMLError(getattr(pynvml, f"NVML_ERROR_{code}"))
            return answer(gpu.nvlinks[link])

        return asked

    def _memory(self, gpu: FakeGPU, version: int | None = None) -> SimpleNamespace:
        used = gpu.used if isinstance(gpu.used, int) else 0
        free = gpu.total - gpu.reserved - used
        if version is None:  # the first version counts the driver's own as used
            return SimpleNamespace(total=gpu.total, used=gpu.used + gpu.reserved, free=free)
        return SimpleNamespace(total=gpu.total, used=gpu.used, free=free, reserved=gpu.reserved)

    def _samples(self, gpu: FakeGPU, kind: int, seen: int) -> tuple[int, list[Any]]:
        fresh = [sample for sample in gpu.power_samples if gpu.repeats or sample[0] > seen]
        if not fresh:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return pynvml.NVML_VALUE_TYPE_UNSIGNED_INT, [
            SimpleNamespace(timeStamp=stamp, sampleValue=SimpleNamespace(uiVal=milliwatts))
            for stamp, milliwatts in fresh
        ]

    def _field_values(self, gpu: FakeGPU, asked: Sequence[Any]) -> Any:
        values = (pynvml.c_nvmlFieldValue_t * len(asked))()
        known = {pynvml.NVML_FI_DEV_MEMORY_TEMP: gpu.memory_temperature} | gpu.fields
        for value, one in zip(values, asked, strict=True):
            value.fieldId = one[0] if isinstance(one, tuple) else one
            value.nvmlReturn = gpu.field_errors.get(value.fieldId, 0)
            if value.fieldId not in known:
                value.nvmlReturn = value.nvmlReturn or pynvml.NVML_ERROR_NOT_SUPPORTED
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.value.uiVal = known.get(value.fieldId, 0)
        return values

    def _process_utilization(self, gpu: FakeGPU, seen: int) -> list[SimpleNamespace]:
        fresh = [sample for sample in gpu.utilization if gpu.repeats or sample[1] > seen]
        if not fresh:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        padding = SimpleNamespace(pid=0, timeStamp=0, smUtil=0)
        samples = [SimpleNamespace(pid=p, timeStamp=t, smUtil=u) for p, t, u in fresh]
        return [*samples, padding]

    def _gpm_alloc(self) -> Any:
        buffer = ctypes.create_string_buffer(8)
        sample = ctypes.cast(buffer, pynvml.c_nvmlGpmSample_t)
        self._buffers[_address(sample)] = buffer
        self.open_samples += 1
        return sample

    def _gpm_free(self, sample: Any) -> None:
        del self._buffers[_address(sample)]
        self.open_samples -= 1

    def _gpm_sample(self, gpu: FakeGPU, sample: Any) -> Any:
        self._sampled[_address(sample)] = self._clock()
        self._sampled_gpu = gpu
        return sample

    def _gpm_metrics(self, asked: Any) -> Any:
        assert asked.version == pynvml.NVML_GPM_METRICS_GET_VERSION
        earlier, later = (self._sampled[_address(s)] for s in (asked.sample1, asked.sample2))
        stale = later - earlier < 0.099
        for metric in asked.metrics[: asked.numMetrics]:
            nan = stale and metric.metricId == pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
            metric.nvmlReturn = 0
            metric.value = math.nan if nan else 0.0 if stale else self._sampled_gpu.gpm
        return asked

    def _event_set(self) -> list[FakeGPU]:
        self.open_event_sets += 1
        return []

    def _free_event_set(self, events: list[FakeGPU]) -> None:
        self.open_event_sets -= 1

    def _wait(self, events: list[FakeGPU], milliseconds: int) -> SimpleNamespace:
        assert milliseconds == 0, "this must never block"
        for gpu in events:
            if gpu.events:
                kind, data = gpu.events.popleft()
                return SimpleNamespace(eventType=kind, eventData=data)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0
