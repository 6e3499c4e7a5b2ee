"""A role's end of the control protocol."""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Mapping
from typing import Any, Self


class Channel:
    """JSON lines from and to the harness. What else is printed goes to standard error."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        """Take over two descriptors: one to read from, one to write to."""
        self._incoming = incoming
        self._outgoing = outgoing
        self._read = b""

    @classmethod
    def of_process(cls) -> Self:
        """The standard streams; libraries that print find standard error in their place."""
        outgoing = os.dup(sys.stdout.fileno())
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        return cls(sys.stdin.fileno(), outgoing)

    def say(self, event: str, **fields: Any) -> None:
        """Send one message.

        Raises:
            BrokenPipeError: If the harness has gone.
        """
        line = json.dumps({"event": event, **fields}).encode() + b"\n"
        while line:
            line = line[os.write(self._outgoing, line) :]

    def hear(self) -> Mapping[str, Any] | None:
        """Wait for the next order; None once the harness has gone."""
        while b"\n" not in self._read:
            more = os.read(self._incoming, 1 << 16)
            if not more:
                return None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        order: Mapping[str, Any] = json.loads(line)
        return order

    def has_order(self) -> bool:
        """Whether an order, or the end of the input, has come; costs about a microsecond."""
        return bool(self._read) or bool(select.select([self._incoming], [], [], 0)[0])
