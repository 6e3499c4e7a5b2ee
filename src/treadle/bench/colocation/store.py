"""The results file: one JSON object a line, only ever appended to.

A run that is killed loses the cell it was measuring and nothing else.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treadle.bench.colocation.arrivals import BLOCK_SECONDS
from treadle.bench.colocation.cells import Cell
from treadle.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a critical workload takes alone, and the rate that follows: the same ever after."""

    critical: str
    service_seconds: float
    """Median of back-to-back requests, as the host sees them."""
    device_seconds: float
    """The same between two events on the device."""
    rate: float
    """Requests per second in every cell of this workload."""
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One stretch of one cell."""

    cell: str
    first: int
    """Number of its first block."""
    blocks: int
    """Its length, in blocks of a second."""
    seed: int
    rate: float | None = None
    arrived: int = 0
    latencies: str | None = None
    """Packed seconds from when each request was due to its end, in order of arrival. Fewer than
    ``arrived`` where time ran out."""
    waited: float = 0.0
    """Seconds from the start of the slice until the server gave up or was done."""
    steps: str | None = None
    """Packed seconds, from the start of the slice, at which each training step was done."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Of the processes: device, versions, service time seen at their start."""

    @property
    def seconds(self) -> float:
        return self.blocks * BLOCK_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A cell that could not be measured, and why."""

    cell: str
    reason: str


Record = Calibration | Slice | Failure
_KINDS: dict[str, type[Record]] = {
    "calibration": Calibration,
    "slice": Slice,
    "failure": Failure,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


class Store:
    """Everything measured so far, in the order in which it was."""

    def __init__(self, file: Path) -> None:
        """Read ``file``, which need not exist. A last line that was cut off is left out.

        Raises:
            ConfigError: If it holds anything else than results.
        """
        self.file = file
        self._records: list[Record] = list(_read(file)) if file.exists() else []

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def append(self, record: Record) -> None:
        """Add a record and have it on the disk before going on."""
        line = {"kind": _NAMES[type(record)], **dataclasses.asdict(record)}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a+b") as file:
            if file.tell() and not _ends_a_line(self.file):
                file.write(b"\n")
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._records.append(record)

    def calibration(self, critical: str) -> Calibration | None:
        """The first one counts: a later rate would be another load."""
        for record in self._records:
            if isinstance(record, Calibration) and record.critical == critical:
                return record
        return None

    def slices(self, cell: Cell) -> list[Slice]:
        """What was measured of a cell: consecutive blocks from the first on."""
        name = str(cell)
        return [r for r in self._records if isinstance(r, Slice) and r.cell == name]

    def blocks(self, cell: Cell) -> int:
        """How many blocks of a cell are done."""
        return sum(part.blocks for part in self.slices(cell))

    def requests(self, cell: Cell) -> int:
        """How many requests of a cell have arrived."""
        return sum(part.arrived for part in self.slices(cell))

    def failure(self, cell: Cell) -> str | None:
        """Why a cell failed when it was last tried; None if it did not."""
        name = str(cell)
        for record in reversed(self._records):
            if isinstance(record, Slice | Failure) and record.cell == name:
                return record.reason if isinstance(record, Failure) else None
        return None

    def cells(self) -> list[str]:
        """Names of the cells that were tried, in the order in which they first were."""
        tried = (r.cell for r in self._records if isinstance(r, Slice | Failure))
        return list(dict.fromkeys(tried))


def _read(file: Path) -> Iterator[Record]:
    lines = file.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
            kind = _KINDS[fields.pop("kind")]
            yield kind(**fields)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number >= len(lines) - 1 or _is_cut(line):
                continue
            raise ConfigError(f"{file}:{number}: no result of a measurement: {error}") from error


def _is_cut(line: bytes) -> bool:
    """Whether a line was being written when its writer was killed."""
    return line.startswith(b'{"kind"') and not line.endswith(b"}")


def _ends_a_line(file: Path) -> bool:
    with file.open("rb") as written:
        written.seek(-1, os.SEEK_END)
        return written.read(1) == b"\n"
