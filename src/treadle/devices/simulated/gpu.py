"""A GPU that does what a test says, and is seen as a real one is."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from treadle.clock import Clock
from treadle.devices.catalogue import GPU_SOURCES, FunctionSource
from treadle.devices.device import (
    DeviceEvent,
    DeviceInfo,
    DeviceKind,
    DeviceProcess,
    Link,
    Mechanism,
    Reading,
    Severity,
    Source,
)
from treadle.devices.mechanisms import MECHANISMS, none_available
from treadle.devices.simulated.books import Books, Tenant
from treadle.devices.simulated.faults import Faults
from treadle.devices.simulated.physics import Board
from treadle.devices.simulated.sources import Readers
from treadle.devices.simulated.state import State

_GIB = 1 << 30
_FAR = "simulated: no program runs on it"


class SimulatedGPU:
    """A ``MonitoredDevice`` whose load, memory, processes and faults are set by the test.

    Everything moves with the clock that is handed in and is the same for the same seed. Safe to
    change from one thread while another reads it.

    Args:
        clock: Whose time it lives in.
        index: Its number on its host, which also names it.
        seed: Of the noise in its power.
        cores: Streaming multiprocessors.
        memory_bytes: All of it.
        reserved_bytes: The driver's own part.
        power_limit_watts: What its board is held to.
        board: Physics.
        numa_node: Of its host.
        host_cores: CPU cores near it.
        mechanisms: Names of those that it says are available.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        index: int = 0,
        seed: int = 0,
        cores: int = 132,
        memory_bytes: int = 141 * _GIB,
        reserved_bytes: int = _GIB // 2,
        power_limit_watts: float = 700.0,
        board: Board | None = None,
        numa_node: int | None = 0,
        host_cores: tuple[int, ...] = (),
        mechanisms: Sequence[str] = (),
    ) -> None:
        if unknown := set(mechanisms) - set(MECHANISMS):
            raise ValueError(f"no mechanisms {sorted(unknown)}; allowed: {', '.join(MECHANISMS)}")
        self.faults = Faults()
        self._clock = clock
        self._lock = threading.RLock()
        self._info = DeviceInfo(
            uuid=f"SIM-{uuid.uuid5(uuid.NAMESPACE_OID, f'treadle simulated {index}')}",
            index=index,
            name="Simulated GPU",
            kind=DeviceKind.SIMULATED,
            cores=cores,
            memory_bytes=memory_bytes,
            partition="off",
            numa_node=numa_node,
            host_cores=host_cores,
            power_limit_watts=power_limit_watts,
        )
        now = clock.now()
        self._books = Books(memory_bytes=memory_bytes, reserved_bytes=reserved_bytes)
        self._state = State(
            board or Board(), now=now, seed=seed * 65_537 + index, limit_watts=power_limit_watts
        )
        self._readers = Readers(self._state, self._books, now).table()
        self._mechanisms = frozenset(mechanisms)
        self._links: list[Link] = []
        self._events: list[DeviceEvent] = []
        self._throttled = False
        self._said_gone = False

    # What the test does with it.

    def load(
        self,
        *,
        sm: float | None = None,
        tensor: float | None = None,
        dram: float | None = None,
        occupancy: float | None = None,
        fp32: float | None = None,
    ) -> None:
        """Set how busy its parts are from now on, 0 to 1; what is not named stays.

        Raises:
            ValueError: If one is not from 0 to 1.
        """
        given = {"sm": sm, "tensor": tensor, "dram": dram, "occupancy": occupancy, "fp32": fp32}
        with self._lock:
            self._advance()
            self._state.set(**{name: part for name, part in given.items() if part is not None})
            self._look()

    def allocate(self, owner: str, nbytes: int) -> None:
        """Take memory; ``ValueError`` and ``DeviceError`` as in ``Books.allocate``."""
        with self._lock:
            self._books.allocate(owner, nbytes)

    def free(self, owner: str, nbytes: int | None = None) -> int:
        """Give back some or all of an owner's memory; returns how much."""
        with self._lock:
            return self._books.free(owner, nbytes)

    def start_process(
        self, pid: int, name: str, *, memory_bytes: int = 0, sm_activity: float = 0.0
    ) -> None:
        """Give a process a context; its own activity is only shown, ``load`` is the whole."""
        with self._lock:
            self._advance()
            self._books.start(pid, Tenant(name, sm_activity), memory_bytes)
            self._wake()
            self._tell("process-start", Severity.INFO, f"{name} (pid {pid})")

    def end_process(self, pid: int) -> None:
        """End a process and free its memory."""
        with self._lock:
            self._advance()
            tenant = self._books.end(pid)
            self._wake()
            self._tell("process-end", Severity.INFO, f"{tenant.name} (pid {pid})")

    def traffic(self, **bytes_per_second: float) -> None:
        """Set what goes over its links from now on.

        Args:
            bytes_per_second: By metric: ``pcie_sent``, ``pcie_received``, ``nvlink_sent``,
                ``nvlink_received``.
        """
        with self._lock:
            self._advance()
            for name, rate in bytes_per_second.items():
                if rate < 0:
                    raise ValueError(f"{name}={rate}; allowed: 0 and more")
                self._state.traffic[name].bytes_per_second = rate

    def limit_power(self, watts: float) -> None:
        """Hold the board to another power."""
        with self._lock:
            self._advance()
            self._state.limit_watts = watts
            self._state.changed()
            self._look()

    def throttle(self, *, thermal: bool | None = None, other: bool | None = None) -> None:
        """Hold its clock down, or let it go, for a reason other than power."""
        with self._lock:
            self._advance()
            if thermal is not None:
                self._state.forced_hot = thermal
                self._state.changed()
            if other is not None:
                self._books.throttled_other = other
            self._look()

    def ecc(self, *, corrected: int = 0, uncorrected: int = 0) -> None:
        """Let so many memory errors happen."""
        with self._lock:
            self._books.ecc_corrected += corrected
            self._books.ecc_uncorrected += uncorrected
            if uncorrected:
                self._tell("ecc", Severity.ERROR, f"{uncorrected} uncorrected memory errors")

    def xid(self, number: int, text: str = "made to happen") -> None:
        """Let the driver report an error."""
        with self._lock:
            self._tell("xid", Severity.ERROR, f"XID {number}: {text}")

    def link(self, peer: SimulatedGPU, kind: str = "NVLink x18") -> None:
        """Connect two of them, both ways."""
        self.add_link(Link(peer.info.uuid, kind))
        peer.add_link(Link(self.info.uuid, kind))

    def add_link(self, link: Link) -> None:
        """Connect it to something, one way."""
        self._links.append(link)

    def vanish(self, text: str = "it has fallen off the bus") -> None:
        """Let it be gone."""
        self.faults.vanish(f"{self._info.name} {self._info.index}: {text}")

    def check_integrity(self) -> None:
        """Assert that its books balance."""
        with self._lock:
            self._books.check_integrity()

    # What a monitor sees of it.

    @property
    def info(self) -> DeviceInfo:
        return replace(self._info, power_limit_watts=self._state.limit_watts)

    def mechanisms(self) -> Sequence[Mechanism]:
        return [
            Mechanism(one.name, True, "simulated") if one.name in self._mechanisms else one
            for one in none_available(_FAR)
        ]

    def links(self) -> Sequence[Link]:
        return tuple(self._links)

    def sources(self) -> Sequence[Source]:
        return [
            FunctionSource(spec, partial(self._read_through, spec.name))
            for spec in GPU_SOURCES.values()
        ]

    def processes(self) -> Sequence[DeviceProcess]:
        with self._lock:
            self.faults.check_there()
            return self._books.listed()

    def events(self) -> Sequence[DeviceEvent]:
        with self._lock:
            if not self.faults.gone:
                self._advance()
                self._look()
            elif not self._said_gone:
                self._said_gone = True
                self._tell("gone", Severity.ERROR, self.faults.gone)
            events, self._events = self._events, []
            return events

    def close(self) -> None:
        """Nothing to give back."""

    def _read_through(self, name: str) -> Sequence[Reading]:
        return self.faults.read(name, partial(self._read, name))

    def _read(self, name: str) -> Sequence[Reading]:
        with self._lock:
            return self._readers[name](self._advance())

    def _advance(self) -> float:
        now = self._clock.now()
        self._state.advance(now)
        return now

    def _wake(self) -> None:
        self._state.awake = bool(self._books.processes)
        self._state.changed()
        self._look()

    def _look(self) -> None:
        """Say when its clock begins or ends to be held down."""
        held = {
            "power": self._state.operation.capped,
            "heat": self._state.hot,
            "another reason": self._books.throttled_other,
        }
        names = [name for name, on in held.items() if on]
        if bool(names) == self._throttled:
            return
        self._throttled = bool(names)
        if names:
            self._tell("throttle-start", Severity.WARNING, f"clocks held down: {', '.join(names)}")
        else:
            self._tell("throttle-end", Severity.INFO, "clocks are free again")

    def _tell(self, kind: str, severity: Severity, text: str) -> None:
        self._events.append(DeviceEvent(self._clock.now(), self._info.uuid, kind, severity, text))
