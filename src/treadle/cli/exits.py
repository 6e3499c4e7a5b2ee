"""Exit codes, one meaning each. ``docs/commands.md`` lists them."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    """What a command's end tells a script."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CONFIG = 3
    NOT_RUNNING = 4
    CANNOT_START = 5
    TIMED_OUT = 124
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127
    INTERRUPTED = 130
