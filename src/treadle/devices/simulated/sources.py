"""The readings of a simulated GPU, in the groups and at the pace of a real one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from treadle.devices.device import Reading
from treadle.devices.simulated.books import Books
from treadle.devices.simulated.state import TICK_SECONDS, UTILIZATION_TICKS, State

GPM_WINDOW_SECONDS = 0.1
JITTER_SECONDS = 0.001
_GPM = {
    "sm_activity": "sm",
    "sm_occupancy": "occupancy",
    "tensor_activity": "tensor",
    "fp16_activity": "fp16",
    "fp32_activity": "fp32",
    "fp64_activity": "fp64",
    "dram_activity": "dram",
}
Read = Callable[[float], Sequence[Reading]]


class Readers:
    """One function of the time for each source; the state has been advanced to it."""

    def __init__(self, state: State, books: Books, now: float) -> None:
        self._state = state
        self._books = books
        self._last_power: Reading | None = None
        self._gpm_at = now
        self._gpm_parts = dict(state.totals.parts)
        self._gpm: list[Reading] = []

    def table(self) -> Mapping[str, Read]:
        return {
            "nvml.utilization": self._utilization,
            "nvml.power-samples": self._power,
            "nvml.gpm": self._activity,
            "nvml.clocks": self._clocks,
            "nvml.memory": self._memory,
            "nvml.temperature": self._temperature,
            "nvml.links": self._links,
            "nvml.processes": self._processes,
            "nvml.board": self._board,
            "nvml.energy": self._energy,
        }

    def _utilization(self, now: float) -> list[Reading]:
        at, busy, memory = self._state.utilization
        window = UTILIZATION_TICKS * TICK_SECONDS
        return [
            Reading("gpu_utilization", busy, at, window),
            Reading("memory_utilization", memory, at, window),
        ]

    def _power(self, now: float) -> list[Reading]:
        last = self._last_power
        fresh = [
            Reading("power", watts, at, TICK_SECONDS)
            for at, watts in self._state.samples
            if last is None or at > last.sampled_at
        ]
        if fresh:
            self._last_power = fresh[-1]
            return fresh
        return [last or Reading("power", None, now, 0.0, "there is no sample yet")]

    def _activity(self, now: float) -> list[Reading]:
        seconds = now - self._gpm_at
        if seconds >= GPM_WINDOW_SECONDS - JITTER_SECONDS:
            parts = dict(self._state.totals.parts)
            self._gpm = [
                Reading(
                    metric,
                    min(1.0, (parts[part] - self._gpm_parts[part]) / seconds),
                    now,
                    seconds,
                )
                for metric, part in _GPM.items()
            ]
            self._gpm_at, self._gpm_parts = now, parts
        reason = "its first window is not over"
        return self._gpm or [Reading(metric, None, now, 0.0, reason) for metric in _GPM]

    def _clocks(self, now: float) -> list[Reading]:
        state, operation = self._state, self._state.operation
        other = float(self._books.throttled_other)
        return [
            Reading("sm_clock", operation.sm_hertz, now, 0.0),
            Reading("memory_clock", state.board.memory_hertz, now, 0.0),
            Reading("performance_state", 0.0, now, 0.0),
            Reading("throttled_power", float(operation.capped), now, 0.0),
            Reading("throttled_thermal", float(state.hot), now, 0.0),
            Reading("throttled_other", other, now, 0.0),
        ]

    def _memory(self, now: float) -> list[Reading]:
        books = self._books
        return [
            Reading("memory_used", float(books.used_bytes), now, 0.0),
            Reading("memory_free", float(books.free_bytes), now, 0.0),
            Reading("memory_reserved", float(books.reserved_bytes), now, 0.0),
        ]

    def _temperature(self, now: float) -> list[Reading]:
        # Whole degrees, as the sensor tells them.
        return [
            Reading("temperature", float(round(self._state.chip.celsius)), now, 0.0),
            Reading("memory_temperature", float(round(self._state.memory.celsius)), now, 0.0),
        ]

    def _links(self, now: float) -> list[Reading]:
        counted = [
            Reading(name, float(int(traffic.total_bytes)), now, 0.0)
            for name, traffic in self._state.traffic.items()
        ]
        return [*counted, Reading("pcie_replays", 0.0, now, 0.0)]

    def _processes(self, now: float) -> list[Reading]:
        return [Reading("processes", float(len(self._books.processes)), now, 0.0)]

    def _board(self, now: float) -> list[Reading]:
        return [
            Reading("power_limit", self._state.limit_watts, now, 0.0),
            Reading("fan_speed", None, now, 0.0, "it has no fans of its own"),
            Reading("ecc_corrected", float(self._books.ecc_corrected), now, 0.0),
            Reading("ecc_uncorrected", float(self._books.ecc_uncorrected), now, 0.0),
            Reading("encoder_utilization", 0.0, now, 0.0),
            Reading("decoder_utilization", 0.0, now, 0.0),
            Reading("bar1_used", float(1 << 20), now, 0.0),
        ]

    def _energy(self, now: float) -> list[Reading]:
        return [Reading("energy", self._state.totals.joules, now, 0.0)]
