"""What the kernel tells of the CPU: use, memory, heat, power; each missing one with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treadle.clock import Clock
from treadle.devices.device import Reading

_SHORTEST_SECONDS = 0.05
"""The kernel counts in steps of 10 ms: a shorter window would be mostly rounding."""
_IDLE_FIELDS = (3, 4)
_STOLEN_FIELDS = 8
"""What comes after is counted in user time already."""
_CPU_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


class Usage:
    """How busy the cores are that this process may use.

    Under a quota of the control group, its own use of that quota counts; without one, how busy
    the cores of the affinity mask are, whoever uses them.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        stat: Path,
        cores: Sequence[int],
        cgroup_stat: Path,
        quota_cores: float | None,
    ) -> None:
        self._clock = clock
        self._stat = stat
        self._cores = frozenset(f"cpu{core}" for core in cores)
        self._cgroup_stat = cgroup_stat
        self._quota_cores = quota_cores
        self._before: tuple[float, float, float] | None = None
        self._last: Reading | None = None

    def read(self) -> list[Reading]:
        """The mean since the last window; the same again where none is over."""
        now = self._clock.now()
        counted = self._count(now)
        if counted is None:
            reason = f"{self._stat} cannot be read, or does not count our cores"
            return [Reading("cpu_utilization", None, now, 0.0, reason)]
        before = self._before
        if before is None:
            self._before = (now, *counted)
        elif now - before[0] >= _SHORTEST_SECONDS and counted[1] > before[2]:
            self._before = (now, *counted)
            part = (counted[0] - before[1]) / (counted[1] - before[2])
            self._last = Reading("cpu_utilization", min(1.0, max(0.0, part)), now, now - before[0])
        waiting = Reading("cpu_utilization", None, now, 0.0, "its first window is not over")
        return [self._last or waiting]

    def _count(self, now: float) -> tuple[float, float] | None:
        """Time used and time that there was, in the same unit; both only grow."""
        if self._quota_cores is not None:
            used = _table(self._cgroup_stat).get("usage_usec")
            if used is not None:
                return used / 1e6, now * self._quota_cores
        try:
            lines = self._stat.read_text().splitlines()
            rows = [line.split() for line in lines if line.startswith("cpu")]
            ours = [
                list(map(int, row[1 : 1 + _STOLEN_FIELDS])) for row in rows if row[0] in self._cores
            ]
            whole = sum(map(sum, ours))
            idle = sum(row[field] for row in ours for field in _IDLE_FIELDS)
        except (OSError, ValueError, IndexError):
            return None
        return (float(whole - idle), float(whole)) if ours else None


class Memory:
    """Memory used and free, of the control group if it has a limit, or else of the machine."""

    def __init__(self, clock: Clock, *, meminfo: Path, cgroup: Path, total_bytes: int) -> None:
        self._clock = clock
        self._meminfo = meminfo
        self._cgroup = cgroup
        self._total_bytes = total_bytes

    def read(self) -> list[Reading]:
        now = self._clock.now()
        used = self._used()
        if used is None:
            reason = f"{self._meminfo} cannot be read"
            return [
                Reading(name, None, now, 0.0, reason) for name in ("memory_used", "memory_free")
            ]
        used = min(max(0, used), self._total_bytes)
        return [
            Reading("memory_used", float(used), now, 0.0),
            Reading("memory_free", float(self._total_bytes - used), now, 0.0),
        ]

    def _used(self) -> int | None:
        limit = _number(self._cgroup / "memory.max")
        current = _number(self._cgroup / "memory.current")
        if limit is not None and current is not None:
            # Files that nobody has touched lately are given up before anyone is refused.
            return current - int(_table(self._cgroup / "memory.stat").get("inactive_file", 0))
        table = _table(self._meminfo)
        available = table.get("MemAvailable:")
        total = table.get("MemTotal:")
        return None if available is None or total is None else int(total - available) * 1024


class Heat:
    """The hottest of the CPU's sensors."""

    def __init__(self, clock: Clock, classes: Path) -> None:
        self._clock = clock
        self._classes = classes

    def read(self) -> list[Reading]:
        found = [milli / 1000 for milli in self._sensors() if -50_000 < milli < 150_000]
        now = self._clock.now()
        if not found:
            reason = f"{self._classes}/hwmon and thermal show no sensor of the CPU"
            return [Reading("temperature", None, now, 0.0, reason)]
        return [Reading("temperature", max(found), now, 0.0)]

    def _sensors(self) -> list[int]:
        paths: list[Path] = []
        for chip in sorted(self._classes.glob("hwmon/hwmon*")):
            if _text(chip / "name") in _CPU_SENSORS:
                paths += sorted(chip.glob("temp*_input"))
        for zone in sorted(self._classes.glob("thermal/thermal_zone*")):
            if _text(zone / "type") in ("x86_pkg_temp", "cpu-thermal"):
                paths.append(zone / "temp")
        return [value for value in map(_number, paths) if value is not None]


class Power:
    """Power and energy of the CPU's packages, by their counters (RAPL)."""

    def __init__(self, clock: Clock, folder: Path) -> None:
        self._clock = clock
        self._folder = folder
        self._before: dict[Path, int] = {}
        self._at: float | None = None
        self._joules = 0.0
        self._last: Reading | None = None

    def read(self) -> list[Reading]:
        """Power as the mean since the last window; energy since the first read."""
        now = self._clock.now()
        packages = [
            path
            for path in sorted(self._folder.glob("intel-rapl:*"))
            if _text(path / "name").startswith("package")
        ]
        counted = {path: _number(path / "energy_uj") for path in packages}
        known = {path: value for path, value in counted.items() if value is not None}
        if not packages or len(known) < len(packages):
            reason = (
                f"this user may not read {self._folder}/intel-rapl:*/energy_uj"
                if packages
                else f"{self._folder} shows no energy counter (RAPL)"
            )
            return [Reading(name, None, now, 0.0, reason) for name in ("power", "energy")]
        if self._at is None:
            self._at, self._before = now, known
        elif (seconds := now - self._at) >= _SHORTEST_SECONDS:
            joules = sum(self._since(path, value) for path, value in known.items()) / 1e6
            self._at, self._before = now, known
            self._joules += joules
            self._last = Reading("power", joules / seconds, now, seconds)
        waiting = Reading("power", None, now, 0.0, "its first window is not over")
        return [self._last or waiting, Reading("energy", self._joules, now, 0.0)]

    def _since(self, path: Path, value: int) -> int:
        grown = value - self._before.get(path, value)
        if grown >= 0:
            return grown
        return grown + (_number(path / "max_energy_range_uj") or -grown)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None


def _table(path: Path) -> dict[str, float]:
    """A file of names and numbers, without the lines that are none."""
    table = {}
    for line in _text(path).splitlines():
        name, _, rest = line.partition(" ")
        words = rest.split()
        if words and words[0].isdigit():
            table[name] = float(words[0])
    return table
