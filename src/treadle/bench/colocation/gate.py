"""The one place that touches the turnstile: finding the gate, and marking oneself busy."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from treadle.errors import TreadleError


class Marker(Protocol):
    """A critical member of a turnstile, as a cooperative server uses it."""

    def busy(self) -> None:
        """Close the turnstile to lower classes, before the first copy or launch."""
        ...

    def idle(self) -> None:
        """Open it again, once the device has finished and nobody waits."""
        ...


class NoMarker:
    """A server that knows of no turnstile."""

    def busy(self) -> None: ...

    def idle(self) -> None: ...


def find_library(given: Path | None) -> Path:
    """The launch gate's shared library: the one given, or the one that treadle built.

    Raises:
        TreadleError: If there is none.
    """
    if given is not None:
        if not given.is_file():
            raise TreadleError(f"no launch gate at {given}")
        return given.resolve()
    try:
        library = importlib.import_module("treadle.turnstile.library")
    except ImportError as error:
        raise TreadleError(f"no launch gate is built here ({error}); --gate-library") from error
    return Path(library.find_library())


def set_knobs(turnstile: Path, knobs: Mapping[str, float]) -> None:
    """Turn the knobs of every page there; those that are not named go back to their defaults.

    Args:
        turnstile: The directory of pages.
        knobs: Seconds by knob, and ``duty`` as a fraction.

    Raises:
        TreadleError: If knobs are named and there is no turnstile to turn them.
    """
    try:
        api = importlib.import_module("treadle.turnstile")
    except ImportError as error:
        if not knobs:
            return
        raise TreadleError(f"no turnstile here: {error}") from error
    api.set_knobs(turnstile, knobs)


def join_as_critical(turnstile: str, name: str) -> Marker:
    """Register this process with a turnstile as critical and cooperative.

    Raises:
        TreadleError: If it cannot be joined.
    """
    os.environ["TREADLE_TURNSTILE"] = turnstile
    os.environ["TREADLE_NAME"] = name
    os.environ["TREADLE_CLASS"] = "critical"
    try:
        api = importlib.import_module("treadle.turnstile")
    except ImportError as error:
        raise TreadleError(f"no turnstile here: {error}") from error
    return _Marks(api)


class _Marks:
    """``with treadle.critical():`` taken apart, since one mark spans several requests."""

    def __init__(self, api: Any) -> None:
        self._enter = api.critical
        self._held: Any = None

    def busy(self) -> None:
        if self._held is None:
            self._held = self._enter()
            self._held.__enter__()

    def idle(self) -> None:
        if self._held is not None:
            self._held.__exit__(None, None, None)
            self._held = None
