"""A cooperative program for the tests: joins without CUDA and marks when it is told to."""

from __future__ import annotations

import sys
from pathlib import Path

from treadle.turnstile.library import GateLibrary

library = GateLibrary(Path(sys.argv[1]))
place = library.join(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
print("ready", flush=True)
for line in sys.stdin:
    word, *rest = line.split()
    if word == "mark":
        library.mark()
    elif word == "unmark":
        library.unmark()
    elif word == "flicker":
        while True:
            library.mark()
            library.unmark()
    elif word == "blink":  # briefly, as it usually does, and then for good
        for _ in range(100):
            library.mark()
            library.unmark()
        library.mark()
    elif word == "hold":
        library.hold(place, int(rest[0]), rest[1] == "on")
    elif word == "clear":
        library.clear_marks(place, int(rest[0]))
    elif word == "leave":
        library.leave()
    elif word == "reap":
        library.reap(place)
    print(word, flush=True)
