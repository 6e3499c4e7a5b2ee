"""What every child process does first."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


def ends_with_parent(number: signal.Signals) -> Callable[[], object]:
    """For ``preexec_fn``: the program gets this signal once who started it has ended."""
    libc = ctypes.CDLL(None)  # here: between fork and exec nothing should be loaded
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, number)


def become_child() -> None:
    """Leave signals to the node, and end when it ends, even by force and whatever runs then.

    The node decides when its children end: a signal to the whole group, from a terminal or a
    service manager, is for the node, which first finishes what it accepted.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
