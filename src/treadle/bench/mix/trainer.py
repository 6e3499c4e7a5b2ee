"""A trainer as a job: it trains until it is asked to end, and then writes when each step was done.

``python -m treadle.bench.mix.trainer trainer --out FILE``: the workloads are those of the
measurement of sharing. Each step reports its samples, as a training under treadle does.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

import numpy as np

import treadle
from treadle.bench.colocation.roles.background import train
from treadle.bench.colocation.roles.critical import collector_paused
from treadle.bench.colocation.roles.lanes import open_lane
from treadle.bench.colocation.workloads import BACKGROUNDS, Scale
from treadle.bench.mix.outcome import write_arrays


def main() -> int:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description="Train until told to end.")
    parser.add_argument("name", choices=BACKGROUNDS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--scale", choices=[str(scale) for scale in Scale], default="full")
    parser.add_argument("--out", type=Path, required=True, help="file for the times of the steps")
    arguments = parser.parse_args()
    asked = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked.set())
    import torch

    from treadle.bench.colocation.roles.trainers import build

    workload, device = BACKGROUNDS[arguments.name], arguments.device
    if device == "cpu":
        torch.set_num_threads(1)
    lane = open_lane(device)
    with lane.use():
        step = build(workload, Scale(arguments.scale), device, lane)

        def reported() -> None:
            step()
            treadle.report(samples=workload.batch)

        with collector_paused():
            finished = train(
                reported, lane, stop=asked.is_set, on_steady=lambda: print("trains", flush=True)
            )
    write_arrays(arguments.out, finished=np.array(finished), samples=np.array([workload.batch]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
