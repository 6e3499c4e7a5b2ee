"""Takes some memory of the GPU, says what it sees, and works whenever it is told to."""

from __future__ import annotations

import sys

import torch


def main() -> None:
    size = int(sys.argv[1])
    try:
        held = torch.ones(size, dtype=torch.uint8, device="cuda")
        torch.cuda.synchronize()
    except torch.cuda.OutOfMemoryError:
        print("refused", flush=True)
        return
    print("ready", torch.cuda.get_device_properties(0).multi_processor_count, flush=True)
    for _ in sys.stdin:
        try:
            held.add_(1)
            torch.cuda.synchronize()
        except RuntimeError as error:
            print("failed", str(error).splitlines()[0], flush=True)
            return
        print("worked", flush=True)


main()
