"""Clients' shared memory, and clients of both protocols that use it."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tritonclient.utils import shared_memory

Array = npt.NDArray[Any]
MODELS = """
[grpc]
port = 0
socket = "grpc.sock"

[[model]]
name = "sums"
factory = "plain:SumAndDifference"
max_batch = 8
worker = "all"

[[model]]
name = "echo"
factory = "plain:Echo"
parameters = { datatype = "FP32", rank = 1 }
worker = "all"

[[model]]
name = "texts"
factory = "plain:Echo"
parameters = { datatype = "BYTES", rank = 1 }
worker = "all"

[[model]]
name = "truths"
factory = "plain:Echo"
parameters = { datatype = "BOOL", rank = 1 }
worker = "all"
"""
STEP = """
[[model]]
name = "step"
factory = "steps:Step"
"""
OPEN = "[http]\nshared_memory = true\nmax_body_bytes = 20000000\n"
REGIONS = "/v2/systemsharedmemory"
A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.full((2, 4), 0.5, np.float32)
BOTH = pytest.mark.parametrize("protocol", ["http", "grpc"])


class Memory:
    """A shared memory object of a client's."""

    _numbers = count()

    def __init__(self, nbytes: int) -> None:
        self.key = f"treadle-test-{os.getpid()}-{next(self._numbers)}"
        self.path = Path("/dev/shm", self.key)
        self._handle = shared_memory.create_shared_memory_region(self.key, self.key, nbytes)

    def write(self, array: Array, offset: int = 0) -> None:
        shared_memory.set_shared_memory_region(self._handle, [array], offset)

    def read(self, kind: Any, shape: list[int], offset: int = 0) -> Array:
        found: Array = shared_memory.get_contents_as_numpy(self._handle, kind, shape, offset)
        return found.copy()

    def close(self) -> None:
        if self.path.exists():
            shared_memory.destroy_shared_memory_region(self._handle)


MakeMemory = Callable[[int], Memory]


class Client:
    """A client of either protocol; the two modules have the same names in them."""

    def __init__(self, module: Any, address: str) -> None:
        self.module = module
        self.calls = module.InferenceServerClient(address)

    def put(self, name: str, shape: list[int], datatype: str, *place: Any) -> Any:
        """An input that lies in a region: its name, its size and where it begins."""
        tensor = self.module.InferInput(name, shape, datatype)
        tensor.set_shared_memory(*place)
        return tensor

    def take(self, name: str, *place: Any) -> Any:
        output = self.module.InferRequestedOutput(name)
        output.set_shared_memory(*place)
        return output
