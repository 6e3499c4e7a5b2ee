"""Cells by name, sets of them, and the order in which they matter.

A cell is written ``critical/background/mode``; ``none`` stands for no workload on a side.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from treadle.bench.colocation.modes import Mode, parse_mode
from treadle.bench.colocation.workloads import (
    BACKGROUNDS,
    CRITICALS,
    NONE,
    Background,
    Critical,
)
from treadle.errors import ConfigError

_PATTERN = frozenset("*?[")
_PARTS = 3
_PAIRS = (
    ("resnet20", "trainer"),
    ("resnet45", "trainer"),
    ("resnet20", "trainer-small"),
    ("encoder30", "trainer"),
    ("resnet20", "trainer-compiled"),
    ("resnet20", "trainer-graphs"),
    ("decoder30", "trainer"),
    ("resnet45", "trainer-small"),
    ("encoder30", "trainer-small"),
    ("decoder30", "trainer-small"),
    ("encoder30", "trainer-compiled"),
    ("encoder30", "trainer-graphs"),
    ("resnet45", "trainer-compiled"),
    ("resnet45", "trainer-graphs"),
    ("decoder30", "trainer-compiled"),
    ("decoder30", "trainer-graphs"),
)
"""Every pair, those first that say most."""
_SHARED = ("gate-coop", "gate", "timeslice", "mps-prio", "mps")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One measurement by name: who runs, beside whom, and how they share."""

    critical: str
    background: str
    mode: Mode

    def __str__(self) -> str:
        return f"{self.critical}/{self.background}/{self.mode}"

    @property
    def critical_workload(self) -> Critical | None:
        return CRITICALS.get(self.critical)

    @property
    def background_workload(self) -> Background | None:
        return BACKGROUNDS.get(self.background)

    @property
    def baselines(self) -> tuple[Cell, ...]:
        """The cells that this one is compared with: each side native and alone."""
        alone = Mode(name="alone")
        if self.mode == alone:
            return ()
        found = []
        if self.critical != NONE:
            found.append(Cell(critical=self.critical, background=NONE, mode=alone))
        if self.background != NONE:
            found.append(Cell(critical=NONE, background=self.background, mode=alone))
        return tuple(found)


def parse_cell(text: str) -> Cell:
    """Read a cell's name.

    Raises:
        ConfigError: If a part is unknown, or the parts make no measurement.
    """
    parts = text.split("/")
    if len(parts) != _PARTS:
        raise ConfigError(f"{text!r} is no cell: write critical/background/mode")
    critical, background = parts[0], parts[1]
    if critical != NONE and critical not in CRITICALS:
        raise ConfigError(f"no critical workload {critical!r}; there are {', '.join(CRITICALS)}")
    if background != NONE and background not in BACKGROUNDS:
        known = ", ".join(BACKGROUNDS)
        raise ConfigError(f"no background workload {background!r}; there are {known}")
    cell = Cell(critical=critical, background=background, mode=parse_mode(parts[2]))
    _check(cell)
    return cell


def known_cells() -> tuple[Cell, ...]:
    """Every cell without knobs, in the order of importance."""
    first, *rest = _PAIRS
    shared = [f"{first[0]}/{first[1]}/{mode}" for mode in _SHARED[:3]]
    costs = [f"none/{name}/gate-cost" for name in ("trainer", "trainer-small")]
    by_mode = [f"{pair[0]}/{pair[1]}/{mode}" for mode in _SHARED[:3] for pair in rest[:6]]
    parallel = [f"{pair[0]}/{pair[1]}/{mode}" for pair in _PAIRS[:7] for mode in _SHARED[3:]]
    later = [f"{pair[0]}/{pair[1]}/{mode}" for pair in rest[6:] for mode in _SHARED]
    more = [f"none/{name}/gate-cost" for name in ("trainer-compiled", "trainer-graphs")]
    opened = [f"none/{name}/gate-open" for name in BACKGROUNDS]
    names = [*shared, *costs, *by_mode, *more, *parallel, *later, *opened]
    return with_baselines(map(parse_cell, names))


SETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "quick": (
            "resnet20/trainer/gate-coop",
            "resnet20/trainer/gate",
            "resnet20/trainer/timeslice",
            "none/trainer/gate-cost",
        ),
        "cost": ("none/trainer/gate-cost", "none/trainer-small/gate-cost"),
        "launch-bound": (
            "resnet20/trainer-small/gate-coop",
            "resnet20/trainer-small/gate",
            "resnet20/trainer-small/timeslice",
            "none/trainer-small/gate-cost",
        ),
        "sweep": tuple(
            f"resnet20/trainer/gate-coop@budget={budget}us" for budget in (50, 100, 200, 400)
        ),
        "coop": tuple(f"{critical}/{background}/gate-coop" for critical, background in _PAIRS[:7]),
        "first-kernel": tuple(f"probe/long-kernels/{mode}" for mode in ("gate-coop", "timeslice")),
        "mps": tuple(f"resnet20/trainer/{mode}" for mode in ("mps-prio", "mps")),
        "all": ("*",),
    }
)
"""Names for lists of cells; what each is compared with is added."""


def choose_cells(text: str, *, baselines: bool = True) -> tuple[Cell, ...]:
    """Read a comma-separated list of cells, patterns and names of sets, keeping its order.

    Commas inside a mode's knobs are understood: a part with ``=`` and no ``/`` belongs to the
    cell before it.

    Args:
        text: For example ``quick,resnet45/*/gate-coop,resnet20/trainer/gate@budget=50us,duty=0``.
        baselines: Put what each cell is compared with before it.

    Raises:
        ConfigError: If a part is neither, or a pattern fits nothing.
    """
    chosen: list[Cell] = []
    for part in _split(text):
        for name in SETS.get(part, (part,)):
            if not _PATTERN & set(name):
                chosen.append(parse_cell(name))
                continue
            fitting = [cell for cell in known_cells() if fnmatch.fnmatchcase(str(cell), name)]
            if not fitting:
                raise ConfigError(f"no cell fits {name!r}")
            chosen.extend(fitting)
    if not chosen:
        raise ConfigError(f"no cells named; sets are {', '.join(SETS)}")
    return with_baselines(chosen) if baselines else tuple(dict.fromkeys(chosen))


def with_baselines(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Every cell once, each after the cells that it is compared with."""
    ordered: dict[Cell, None] = {}
    for cell in cells:
        ordered.update(dict.fromkeys((*cell.baselines, cell)))
    return tuple(ordered)


def _split(text: str) -> list[str]:
    parts: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if parts and "=" in part and "/" not in part:
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return parts


def _check(cell: Cell) -> None:
    traits = cell.mode.traits
    both = cell.critical != NONE and cell.background != NONE
    if cell.mode.name == "alone":
        fits = (cell.critical != NONE) != (cell.background != NONE)
    elif cell.mode.name in ("gate-cost", "gate-open"):
        fits = cell.critical == NONE and cell.background != NONE
    else:
        fits = both
    if not fits:
        raise ConfigError(f"{cell} measures nothing: {cell.mode.name} is {traits.says}")
