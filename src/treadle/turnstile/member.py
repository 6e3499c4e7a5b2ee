"""Taking part from Python: a seat, and marks around critical work."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treadle.turnstile.library import GateLibrary, load_gate_library
from treadle.turnstile.page import TurnstileError
from treadle.types import Priority

_log = logging.getLogger("treadle.turnstile")

LOOKS_AFTER_OTHERS = len(Priority)


class Seat:
    """This process's seat at one GPU's turnstile. It falls with the process."""

    def __init__(self, library: GateLibrary, place: int, folder: Path, uuid: str) -> None:
        self._library = library
        self._place = place
        self.folder = folder
        self.uuid = uuid

    @property
    def index(self) -> int:
        """The number of its record on the page."""
        return self._library.seat(self._place)

    @contextmanager
    def critical(self) -> Iterator[None]:
        """Hold back everything less urgent meanwhile. Blocks may nest, and threads may share."""
        self._library.mark()
        try:
            yield
        finally:
            self._library.unmark()

    def mark(self) -> None:
        self._library.mark()

    def unmark(self) -> None:
        self._library.unmark()

    def wait(self, length_seconds: float = 0.0) -> None:
        """Wait while more urgent work is busy, as a launch of that length would."""
        self._library.wait(self._place, int(length_seconds * 1e9))

    def hold(self, index: int) -> None:
        """Keep another member at the gate until ``let_go``, or until this process ends."""
        self._library.hold(self._place, index, True)

    def let_go(self, index: int) -> None:
        self._library.hold(self._place, index, False)

    def clear_marks(self, index: int) -> None:
        """Take away a member's marks, as when it was stopped while busy.

        It marks again when it is next busy.
        """
        self._library.clear_marks(self._place, index)

    def reap(self) -> bool:
        """Take back what dead members have left; True if there was any."""
        return self._library.reap(self._place)


def join(folder: Path, uuid: str, priority: Priority | None, name: str = "") -> Seat:
    """Take a seat at the turnstile of the GPU ``uuid``.

    Args:
        folder: The turnstile folder.
        uuid: Of the GPU.
        priority: The class of this process; None if it only looks after others.
        name: For people to read.

    Raises:
        TurnstileError: If the library is missing or the page cannot be used.
    """
    library = load_gate_library()
    class_ = LOOKS_AFTER_OTHERS if priority is None else int(priority)
    return Seat(library, library.join(folder, uuid, class_, name), folder, uuid)


@contextmanager
def critical() -> Iterator[None]:
    """Hold back less urgent work on every GPU whose turnstile this process sits at.

    Does nothing where it sits at none, so a program may use it wherever it runs. Where the gate
    cannot be loaded, the log says so once.
    """
    library = _library_if_any()
    marked = library is not None and library.mark()
    try:
        yield
    finally:
        if library is not None and marked:
            library.unmark()


@contextmanager
def using(priority: Priority) -> Iterator[None]:
    """Give what this thread launches another class than its process's. Blocks may nest.

    A stream that was assigned a class keeps it. In a process that sits at no turnstile it changes
    nothing, so a program may use it wherever it runs.
    """
    library = _library_if_any()
    if library is None:
        yield
        return
    before = library.thread_class()
    library.set_thread_class(int(priority))
    try:
        yield
    finally:
        library.set_thread_class(before)


def assign(stream: int, priority: Priority | None) -> None:
    """Give what is launched on a CUDA stream a class, whichever thread launches it.

    Args:
        stream: The stream's handle, as ``torch.cuda.Stream.cuda_stream`` has it. 0 and 1 are the
            legacy default stream, 2 is each thread's own. A class falls with its stream.
        priority: The class; None takes it back.

    Raises:
        TurnstileError: If hundreds of streams have a class.
    """
    library = _library_if_any()
    if library is not None:
        library.set_stream_class(stream, None if priority is None else int(priority))


def _library_if_any() -> GateLibrary | None:
    try:
        return load_gate_library()
    except TurnstileError as error:
        _say_once(str(error))
        return None


@functools.cache
def _say_once(reason: str) -> None:
    _log.warning("nothing is held back for this program: %s", reason)
