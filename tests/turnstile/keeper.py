"""A gatekeeper that is told what to do, a line at a time."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from treadle.programs.holding import Gatekeeper

keeper = Gatekeeper(Path(sys.argv[1]), "mine")
print("ready", flush=True)
for line in sys.stdin:
    what, number, gpus = json.loads(line)
    print(getattr(keeper, what)(number, gpus), flush=True)
