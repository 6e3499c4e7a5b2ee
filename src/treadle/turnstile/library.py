"""Finding and loading the gate's library, or saying why there is none."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys
from pathlib import Path

from treadle.turnstile.page import TurnstileError

LIBRARY = "libtreadle_gate.so"
MISSING = "libtreadle_gate.missing"
"""Written by the build in the library's place: why it is not there."""

_REASONS = {
    errno.EPROTO: "it is not a turnstile",
    errno.EPROTONOSUPPORT: "it is of another version of treadle",
    errno.EAGAIN: "all of its 64 seats are taken",
}


class GateLibrary:
    """The library's functions, with their errors as exceptions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            library = ctypes.CDLL(str(path))
            library.treadle_layout.restype = ctypes.c_char_p
            library.treadle_join.argtypes = [
                ctypes.c_char_p,
                ctypes.c_char_p,
                ctypes.c_uint,
                ctypes.c_char_p,
            ]
            library.treadle_set_stream_class.argtypes = [ctypes.c_void_p, ctypes.c_int]
            library.treadle_stream_class.argtypes = [ctypes.c_void_p]
            library.treadle_wait.argtypes = [ctypes.c_int, ctypes.c_ulonglong]
        except (OSError, AttributeError) as error:
            raise TurnstileError(f"cannot load {path}: {error}") from error
        self._library = library

    def layout(self) -> str:
        text: bytes = self._library.treadle_layout()
        return text.decode()

    def join(self, folder: Path, uuid: str, class_: int, name: str) -> int:
        """Take a seat and return its place.

        Raises:
            TurnstileError: If the page cannot be used, with the reason.
        """
        place: int = self._library.treadle_join(
            os.fsencode(folder), uuid.encode(), class_, name.encode()[:31]
        )
        if place < 0:
            reason = _REASONS.get(-place) or os.strerror(-place)
            raise TurnstileError(f"cannot join the turnstile {folder / uuid}: {reason}")
        return place

    def leave(self) -> None:
        self._library.treadle_leave()

    def seat(self, place: int) -> int:
        index: int = self._library.treadle_seat(place)
        if index < 0:
            raise TurnstileError(f"no seat at place {place}")
        return index

    def mark(self) -> bool:
        """Mark this process busy; False if it sits at no turnstile."""
        return bool(self._library.treadle_mark() == 0)

    def unmark(self) -> bool:
        return bool(self._library.treadle_unmark() == 0)

    def set_thread_class(self, class_: int | None) -> None:
        """Give the calling thread a class, or take it back (None)."""
        if self._library.treadle_set_thread_class(-1 if class_ is None else class_) < 0:
            raise TurnstileError(f"no class {class_}")

    def thread_class(self) -> int | None:
        class_: int = self._library.treadle_thread_class()
        return None if class_ < 0 else class_

    def set_stream_class(self, stream: int, class_: int | None) -> None:
        """Give a CUDA stream a class, or take it back (None)."""
        error: int = self._library.treadle_set_stream_class(
            stream, -1 if class_ is None else class_
        )
        if error == -errno.ENOSPC:
            raise TurnstileError("too many streams have a class of their own")
        if error < 0:
            raise TurnstileError(f"no class {class_}")

    def stream_class(self, stream: int) -> int | None:
        class_: int = self._library.treadle_stream_class(stream)
        return None if class_ < 0 else class_

    def wait(self, place: int, length_ns: int) -> None:
        self._library.treadle_wait(place, length_ns)

    def hold(self, place: int, index: int, on: bool) -> None:
        if self._library.treadle_hold(place, index, int(on)) < 0:
            raise TurnstileError(f"cannot hold member {index}")

    def clear_marks(self, place: int, index: int) -> None:
        if self._library.treadle_clear_marks(place, index) < 0:
            raise TurnstileError(f"cannot clear the marks of member {index}")

    def reap(self, place: int) -> bool:
        return bool(self._library.treadle_reap(place) == 1)


def gate_library_path() -> Path:
    """Where the gate's library lies.

    Raises:
        TurnstileError: If it was not built here, or is not where ``TREADLE_GATE_LIBRARY`` says;
            the text says why and what to do.
    """
    if given := os.environ.get("TREADLE_GATE_LIBRARY"):
        # The loader skips a library that is not there: the program would run without the gate.
        if not Path(given).is_file():
            raise TurnstileError(f"no launch gate at {given}, where TREADLE_GATE_LIBRARY points")
        return Path(given)
    folder = Path(__file__).parent
    path = folder / LIBRARY
    if path.exists():
        return path
    if not sys.platform.startswith("linux"):
        raise TurnstileError("the launch gate is for Linux only")
    missing = folder / MISSING
    reason = missing.read_text().strip() if missing.exists() else "it was not built"
    raise TurnstileError(
        f"the launch gate is missing: {reason}. Install a C compiler or `pip install ziglang`, "
        f"then run `python -m treadle.turnstile.build`"
    )


@functools.cache
def load_gate_library(path: Path | None = None) -> GateLibrary:
    """Load the library, once for each path: a process has one gate."""
    return GateLibrary(path or gate_library_path())
