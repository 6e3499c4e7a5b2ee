"""Processes that are kept warm between cells.

Starting PyTorch takes ten seconds, most cells a minute; so a process serves every cell in which
its environment is the same. One that has nothing to do waits for its next order in a read: it
holds memory and a context, but no work on the device, and so takes no turn there; on a
turnstile's page it is no equal of one that is measured. ``--fresh`` measures without this.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import treadle
from treadle.bench.colocation.gate import library_environment
from treadle.bench.colocation.process import RoleError, RoleProcess
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.workloads import BACKGROUNDS, CRITICALS, LOAD_SECONDS

_LOADED_AT_MOST = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleKey:
    """What makes two processes interchangeable."""

    kind: str
    """``critical``, ``background`` or ``silent``."""
    name: str
    """Model, workload or page."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables beyond our own, sorted."""
    mps: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def warm_seconds(self) -> float:
        """About how long it takes from loaded to ready."""
        if self.kind == "critical":
            return max(c.warm_seconds for c in CRITICALS.values() if c.model == self.name)
        return BACKGROUNDS[self.name].warm_seconds if self.kind == "background" else 0.1

    @property
    def memory_bytes(self) -> int:
        """About how much device memory it holds once it is warm."""
        if self.kind == "critical":
            return max(c.memory_bytes for c in CRITICALS.values() if c.model == self.name)
        return BACKGROUNDS[self.name].memory_bytes if self.kind == "background" else 0


class Pool:
    """Starts roles, warms them one at a time, and ends those that are in the way."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loading: dict[RoleKey, RoleProcess] = {}
        self._loaded: dict[RoleKey, RoleProcess] = {}
        self._warm: dict[RoleKey, RoleProcess] = {}
        """The one used last comes last."""

    def estimate_seconds(self, keys: Iterable[RoleKey]) -> float:
        """About how long ``acquire`` would take."""
        cold = [key for key in keys if key not in self._warm]
        loads = LOAD_SECONDS if any(key not in self._loaded for key in cold) else 0.0
        return loads + sum(key.warm_seconds for key in cold)

    def acquire(
        self, keys: Iterable[RoleKey], upcoming: Iterable[RoleKey] = ()
    ) -> list[RoleProcess]:
        """Return a ready process for each key.

        Args:
            keys: What is needed now, in the order in which it is warmed.
            upcoming: What will be needed soon: it is loaded at the same time, since loading
                takes processors and must not go on while something is measured.

        Raises:
            RoleError: If a needed one fails; it is gone then.
        """
        needed = list(dict.fromkeys(keys))
        cold = [key for key in needed if key not in self._warm and key not in self._loaded]
        if cold:
            soon = [key for key in dict.fromkeys(upcoming) if not self._knows(key)]
            room = _LOADED_AT_MOST - len(self._loaded) - len(cold)
            self._load([*cold, *(key for key in soon if key not in cold)][: len(cold) + room])
        for key in needed:
            if key not in self._warm:
                self._make_room(key, needed)
                self._warm_up(key)
            self._warm[key] = self._warm.pop(key)
        return [self._warm[key] for key in needed]

    def discard(self, keys: Iterable[RoleKey]) -> None:
        """End the processes of these keys, whatever they are doing."""
        for key in keys:
            for place in (self._loading, self._loaded, self._warm):
                process = place.pop(key, None)
                if process is not None:
                    process.kill()

    def release(self, keys: Iterable[RoleKey]) -> None:
        """End the processes of these keys in peace."""
        for key in keys:
            for place in (self._loaded, self._warm):
                process = place.pop(key, None)
                if process is not None:
                    process.close()

    def release_mps(self) -> None:
        """End every client of MPS; its daemon is about to stop."""
        self.release([key for key in (*self._warm, *self._loaded) if key.mps])

    def release_kinds(self, *kinds: str) -> None:
        """End every process of these kinds."""
        self.release([key for key in (*self._warm, *self._loaded) if key.kind in kinds])

    def close(self) -> None:
        """End everything."""
        self.discard(self._loading)
        for place in (self._loaded, self._warm):
            for process in place.values():
                process.kill()
            place.clear()

    def _knows(self, key: RoleKey) -> bool:
        return key in self._warm or key in self._loaded

    def _load(self, keys: list[RoleKey]) -> None:
        """Start processes side by side and wait until all have imported what they need."""
        for key in keys:
            command = [
                *self._settings.role_command,
                key.kind,
                key.name,
                self._settings.device,
                self._settings.scale.value,
            ]
            self._loading[key] = RoleProcess(str(key), command, self._environment(key))
        end = time.monotonic() + self._settings.timeouts.load
        failed: RoleError | None = None
        for key in keys:
            try:
                self._loading[key].expect("loaded", max(end - time.monotonic(), 0.1))
            except RoleError as error:
                self.discard([key])
                failed = error  # the needed ones are missed again when they are to be warmed
            else:
                self._loaded[key] = self._loading.pop(key)
        if failed is not None and keys[0] not in self._loaded:
            raise failed

    def _environment(self, key: RoleKey) -> Mapping[str, str]:
        more = library_environment(self._settings.gate_library)
        return role_environment([*more.items(), *key.environment])

    def _warm_up(self, key: RoleKey) -> None:
        if key not in self._loaded:
            self._load([key])
        process = self._loaded[key]
        try:
            process.tell("warm")
            facts = process.expect("ready", self._settings.timeouts.warm)
            process.facts = {name: value for name, value in facts.items() if name != "event"}
        except RoleError:
            self.discard([key])
            raise
        self._warm[key] = self._loaded.pop(key)

    def _make_room(self, key: RoleKey, needed: list[RoleKey]) -> None:
        """End warm processes, the longest unused first, until this one fits."""
        for other in list(self._warm):
            held = sum(warm.memory_bytes for warm in self._warm)
            if held + key.memory_bytes <= self._settings.memory_bytes:
                return
            if other not in needed:
                self.release([other])


def role_environment(more: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Our environment without any gate or MPS of the caller's, and what a role gets besides."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TREADLE_", "CUDA_MPS_"))
    }
    source = str(Path(treadle.__file__).parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**ours, "PYTHONPATH": os.pathsep.join(paths), **dict(more)}
