"""What the servers are asked: the bodies of the requests, and what is a right answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from bench.servers.errors import BenchError
from bench.servers.processes import Answer
from numpy.typing import NDArray

JSON_HEADERS = {"Content-Type": "application/json"}
HEADER_LENGTH = "Inference-Header-Content-Length"
"""Header of the protocol's binary tensor extension: bytes of JSON before the raw tensors."""
BATCH_DELAY_SECONDS = 0.002
"""How long a server that gathers batches may wait for one to fill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One request, sent over and over to one model."""

    name: str
    model: str
    """Name of the model: ``identity`` or ``file-type``."""
    body: bytes
    headers: Mapping[str, str]
    connections: tuple[int, ...]
    """The numbers of connections to measure at, one after the other."""
    expected: NDArray[Any]
    """The model's output."""
    max_batch: int = 1
    binary: bool = False
    """The tensor travels as raw bytes, both ways."""

    def check(self, answer: Answer, *, echo: bool) -> None:
        """Compare an answer with what the model gives, or with the request if it is an echo.

        Raises:
            BenchError: If they differ.
        """
        if answer.status != 200:
            raise BenchError(f"status {answer.status}: {answer.body[:500]!r}")
        if echo:
            if answer.body != self.body:
                raise BenchError("the echo differs from the request")
            return
        output = self._output(answer)
        if output.shape != self.expected.shape:
            raise BenchError(f"shape {output.shape} instead of {self.expected.shape}")
        if not np.allclose(output, self.expected, rtol=1e-4, atol=1e-6):
            raise BenchError(f"output {output} instead of {self.expected}")

    def _output(self, answer: Answer) -> NDArray[Any]:
        try:
            if self.binary:
                length = int(answer.headers[HEADER_LENGTH.lower()])
                (output,) = json.loads(answer.body[:length])["outputs"]
                flat = np.frombuffer(answer.body[length:], np.float32)
            else:
                (output,) = json.loads(answer.body)["outputs"]
                flat = np.array(output["data"], np.float32)
            return flat.reshape(output["shape"])
        except (ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{error!r} in {answer.body[:500]!r}") from error


def identity(*, max_batch: int = 1) -> Workload:
    """16 numbers there and back: what the server itself costs."""
    values = np.random.default_rng(0).normal(size=(1, 16)).round(4).astype(np.float32)
    return Workload(
        name="identity" if max_batch == 1 else "identity-batched",
        model="identity",
        body=_json_body("input", "FP32", values.shape, [round(float(v), 4) for v in values[0]]),
        headers=JSON_HEADERS,
        connections=(32, 1) if max_batch == 1 else (32,),
        expected=values,
        max_batch=max_batch,
    )


def file_type(model_file: Path, *, max_batch: int = 1) -> Workload:
    """A small real model: 2048 bytes of a file in, a probability for each of 214 types out."""
    # Any bytes take the model as long; these need no file that could change.
    batch = np.random.default_rng(0).integers(0, 256, (1, 2048), np.int32)
    session = onnxruntime.InferenceSession(str(model_file), providers=["CPUExecutionProvider"])
    (label,) = session.run(["target_label"], {"bytes": batch})
    return Workload(
        name="file-type" if max_batch == 1 else "file-type-batched",
        model="file-type",
        body=_json_body("bytes", "INT32", batch.shape, batch.ravel().tolist()),
        headers=JSON_HEADERS,
        connections=(32, 1) if max_batch == 1 else (32,),
        expected=label,
        max_batch=max_batch,
    )


def binary_tensor() -> Workload:
    """600 kB there and back as raw bytes: what moving and copying costs."""
    values = np.random.default_rng(0).normal(size=(1, 150_000)).astype(np.float32)
    tensor = {
        "name": "input",
        "datatype": "FP32",
        "shape": values.shape,
        "parameters": {"binary_data_size": values.nbytes},
    }
    wanted = {"name": "output", "parameters": {"binary_data": True}}
    header = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
    return Workload(
        name="binary-600k",
        model="identity",
        body=header + values.tobytes(),
        headers={"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(header))},
        connections=(1, 4),
        expected=values,
        binary=True,
    )


def _json_body(name: str, datatype: str, shape: tuple[int, ...], data: list[Any]) -> bytes:
    tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
    return json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()
