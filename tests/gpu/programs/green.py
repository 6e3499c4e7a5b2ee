"""Two streams with half of the SMs each; says which SMs their kernels ran on.

Long kernels run in both at once, beside those of the stream that everybody has.
"""

from __future__ import annotations

from typing import Any

import torch

from treadle.devices.device import DeviceError
from treadle.devices.green import GreenContexts

cuda: Any = torch.cuda  # not all of it has types
WHERE = """
extern "C" __global__ void where(int *seen) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    long long start = clock64();
    while (clock64() - start < 200000) {}
    if (threadIdx.x == 0) seen[sm] = 1;
}
"""


def main() -> None:
    square = torch.rand(4096, 4096, device="cuda")
    expected = square @ square
    torch.cuda.synchronize()
    try:
        contexts = GreenContexts(0)
    except DeviceError as error:
        print("missing", error, flush=True)
        return
    made = [contexts.stream(0.5, priority) for priority in (0, -1)]
    streams = [cuda.ExternalStream(handle) for handle, _ in made]
    results: list[Any] = [None, None]
    for _ in range(50):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[number] = square @ square
        square @ square
    torch.cuda.synchronize()
    right = all(torch.allclose(result, expected, rtol=1e-3) for result in results)
    print("counts", contexts.sms, *(sms for _, sms in made), int(right), flush=True)
    try:
        where = cuda._compile_kernel(WHERE, "where")  # noqa: SLF001
    except Exception:  # of PyTorch before 2.9, or without its compiler
        print("places unknown", flush=True)
        return
    seen = []
    for stream in streams:
        places = torch.zeros(1024, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            where(grid=(4096, 1, 1), block=(1024, 1, 1), args=[places])
        stream.synchronize()
        seen.append(set(places.nonzero().flatten().tolist()))
    print("places", *map(len, seen), len(seen[0] & seen[1]), flush=True)


if __name__ == "__main__":
    main()
