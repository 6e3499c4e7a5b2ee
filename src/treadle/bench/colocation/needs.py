"""What a measurement needs of the machine, asked before anything is started."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

from treadle.errors import TreadleError

COUNT_GPUS = """
import ctypes, sys
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
print(f"code {code}" if code else count.value)
"""
"""For a process of its own: the harness itself never uses the GPU that it measures."""
ANSWER_SECONDS = 60.0


def check_plot() -> None:
    """See that a plot can be drawn.

    Raises:
        TreadleError: If matplotlib is missing.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise TreadleError("a plot needs matplotlib: install treadle[plot]")


def check_gpu(program: str = COUNT_GPUS, answer_seconds: float = ANSWER_SECONDS) -> None:
    """See that the workloads can run on a GPU.

    Args:
        program: What prints how many GPUs there are.
        answer_seconds: How long it may take.

    Raises:
        TreadleError: If PyTorch or a GPU is missing; the text says which.
    """
    if importlib.util.find_spec("torch") is None:
        raise TreadleError("measuring needs PyTorch: install treadle[torch]")
    try:
        done = subprocess.run(  # noqa: S603  # ourselves
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=answer_seconds,
        )
    except subprocess.TimeoutExpired:
        raise TreadleError(
            f"measuring needs a GPU: the driver does not answer in {answer_seconds:.0f} s"
        ) from None
    answer = done.stdout.strip()
    if done.returncode:
        complaint = done.stderr.strip().splitlines()[-1:]
        raise TreadleError(f"measuring needs a GPU and its driver: {''.join(complaint)}")
    if answer.startswith("code"):
        raise TreadleError(f"measuring needs a GPU: the driver answers with {answer}")
    if answer == "0":
        raise TreadleError("measuring needs a GPU: the driver knows none")
