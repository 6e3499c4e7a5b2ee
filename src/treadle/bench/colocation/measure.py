"""Measures one slice of a cell: who is started, in which order, and who says what."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from treadle.bench.colocation import modes
from treadle.bench.colocation.arrivals import BLOCK_SECONDS
from treadle.bench.colocation.cells import Cell
from treadle.bench.colocation.gate import Counters, Gate, open_gate, set_knobs, shared_folder
from treadle.bench.colocation.modes import BACKGROUND, CRITICAL
from treadle.bench.colocation.pool import Pool, RoleKey
from treadle.bench.colocation.process import RoleError, RoleProcess
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.store import Calibration, Slice
from treadle.bench.colocation.workloads import CRITICALS
from treadle.devices.mps import MpsDaemon
from treadle.errors import TreadleError

_LEAD_SECONDS = 0.2
"""From the order to the schedule's start, so that the first arrival is not late."""
_SETTLE_SECONDS = 2.0
"""The same under the gate: with the critical member there, it first learns how long kernels are."""
_TAIL_SECONDS = 0.1
"""The trainer goes on for so long after the end, so that its last second is whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Which process plays which part in a cell."""

    critical: RoleKey | None
    background: RoleKey | None
    silent: RoleKey | None

    @property
    def needed(self) -> list[RoleKey]:
        """In the order of warming: the critical one last, when its rival has settled."""
        parts = (self.background, self.silent, self.critical)
        return [part for part in parts if part is not None]


class Bench:
    """Everything that a run of measurements has started. Used as a context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._home = Path(tempfile.mkdtemp(prefix="treadle-colocation-", dir=shared_folder()))
        self._gates: dict[str, Gate] = {}
        self._mps: MpsDaemon | None = None
        self.pool = Pool(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.pool.close()
        self._stop_mps()
        shutil.rmtree(self._home, ignore_errors=True)

    def roles(self, cell: Cell) -> Roles:
        """The processes that a cell needs.

        Raises:
            TreadleError: If this machine lacks what its mode needs.
        """
        traits = cell.mode.traits
        critical, background = cell.critical_workload, cell.background_workload
        return Roles(
            critical=None if critical is None else self._key(cell, CRITICAL, critical.model),
            background=None if background is None else self._key(cell, BACKGROUND, cell.background),
            silent=self._silent(cell) if traits.silent_member else None,
        )

    def gate(self, cell: Cell) -> Gate:
        """The launch gate of a cell. Each background workload has a page of its own.

        So one that is kept warm is no member beside the one that is measured: equals take turns
        and bound each other.

        Raises:
            TreadleError: If there is no gate here.
        """
        gate = self._gates.get(cell.background)
        if gate is None:
            gate = open_gate(self._settings.gate_library, self._home, cell.background)
            self._gates[cell.background] = gate
        return gate

    def start_seconds(self, cell: Cell) -> float:
        """About how long it takes until a cell's processes are ready."""
        return self.pool.estimate_seconds(self.roles(cell).needed)

    def calibrate(self, critical: str, soon: Iterable[Cell] = ()) -> Calibration:
        """Ask a native critical process how long a request takes, and set the rate by it."""
        workload = CRITICALS[critical]
        self._stop_mps()
        native = RoleKey(kind=CRITICAL, name=workload.model)
        (process,) = self.pool.acquire([native], self._keys(soon))
        service = float(process.facts["service_seconds"])
        return Calibration(
            critical=critical,
            service_seconds=service,
            device_seconds=float(process.facts["device_seconds"]),
            rate=float(f"{workload.load / service:.3g}"),
            device=str(process.facts["device"]),
        )

    def measure(
        self, cell: Cell, rate: float | None, first: int, blocks: int, soon: Iterable[Cell] = ()
    ) -> Slice:
        """Measure some blocks of a cell.

        Args:
            cell: What to measure.
            rate: Requests per second, None without a critical workload.
            first: Number of the first block.
            blocks: How many.
            soon: Cells that follow; what they need is loaded together with this one's.

        Raises:
            TreadleError: If a process fails or the machine lacks something. Everything that
                took part is gone then.
        """
        self._prepare(cell)
        roles = self.roles(cell)
        try:
            processes = dict(
                zip(roles.needed, self.pool.acquire(roles.needed, self._keys(soon)), strict=True)
            )
            counters = None
            if cell.mode.traits.gates_background:
                set_knobs(self.gate(cell).page, modes.turnstile_knobs(cell.mode))
                counters = Counters(self.gate(cell).page)
            critical = processes[roles.critical] if roles.critical else None
            background = processes[roles.background] if roles.background else None
            parts = self._run(cell, critical, background, (rate, first, blocks))
            members = {} if counters is None else {"members": counters.read()}
            if critical is not None and cell.mode.traits.marks:
                critical.tell("leave")
        except RoleError:
            self.pool.discard(roles.needed)
            raise
        finally:
            if self._settings.fresh:
                self.pool.release(roles.needed)
        facts = {part.name: part.facts for part in (critical, background) if part is not None}
        facts |= {"gate": members} if members else {}
        return Slice(
            cell=str(cell),
            first=first,
            blocks=blocks,
            seed=self._settings.seed,
            rate=rate,
            facts=facts,
            **parts,
        )

    def _run(
        self,
        cell: Cell,
        critical: RoleProcess | None,
        background: RoleProcess | None,
        stretch: tuple[float | None, int, int],
    ) -> dict[str, Any]:
        rate, first, blocks = stretch
        seconds = blocks * BLOCK_SECONDS
        timeouts = self._settings.timeouts
        parts: dict[str, Any] = {}
        if background is not None:
            background.tell("go")
            background.expect("running", timeouts.steady)
        lead = _SETTLE_SECONDS if cell.mode.traits.gates_background else _LEAD_SECONDS
        zero = time.monotonic() + lead
        if critical is not None:
            marks = str(self.gate(cell).page) if cell.mode.traits.marks else None
            critical.tell(
                "go",
                rate=rate,
                seed=self._settings.seed,
                first=first,
                blocks=blocks,
                zero=zero,
                end=zero + seconds + timeouts.drain,
                page=marks,
                name=cell.critical,
            )
            wait = seconds + timeouts.drain + timeouts.answer
            result = critical.expect("result", lead + wait)
            parts["arrived"] = result["arrived"]
            parts["latencies"] = result["latencies"]
            parts["waited"] = result["ended"] - zero
        if background is not None:
            left = zero + seconds + _TAIL_SECONDS - time.monotonic()
            background.watch(max(left, _TAIL_SECONDS))
            background.tell("stop", zero=zero)
            parts["steps"] = background.expect("result", timeouts.answer)["steps"]
        return parts

    def _prepare(self, cell: Cell) -> None:
        """Bring about what a mode needs, and end what would disturb it."""
        if cell.mode.traits.mps:
            if self._mps is None:
                daemon = MpsDaemon(self._home / "mps")
                daemon.start()
                self._mps = daemon
        else:
            self._stop_mps()
        if cell.mode.name == "gate-open":
            self.pool.release_kinds(CRITICAL, "silent")

    def _stop_mps(self) -> None:
        if self._mps is not None:
            self.pool.release_mps()
            daemon, self._mps = self._mps, None
            daemon.close()

    def _keys(self, cells: Iterable[Cell]) -> list[RoleKey]:
        """Of cells that need no other preparation than this run has made."""
        keys: list[RoleKey] = []
        for cell in cells:
            if cell.mode.traits.mps == (self._mps is not None):
                with contextlib.suppress(TreadleError):  # said when it is that cell's turn
                    keys += self.roles(cell).needed
        return keys

    def _silent(self, cell: Cell) -> RoleKey:
        return RoleKey(kind="silent", name=str(self.gate(cell).page))

    def _key(self, cell: Cell, member: str, name: str) -> RoleKey:
        traits = cell.mode.traits
        environment: dict[str, str] = {}
        if traits.gates_critical if member == CRITICAL else traits.gates_background:
            environment |= modes.gate_environment(member, name=name, gate=self.gate(cell))
        if traits.mps:
            pipes = self._home if self._mps is None else self._mps.pipe_directory
            environment |= modes.mps_environment(cell.mode, member, pipes)
        return RoleKey(
            kind=member, name=name, environment=tuple(sorted(environment.items())), mps=traits.mps
        )
