"""Critical work without a GPU: closes a turnstile for 2 of every 7 ms until its input ends."""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path

from treadle.turnstile import join
from treadle.types import Priority

seat = join(Path(sys.argv[1]), sys.argv[2], Priority.CRITICAL, "pulses")
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.005)[0]:
    with seat.critical():
        time.sleep(0.002)
