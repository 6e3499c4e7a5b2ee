"""What tests of the gRPC data plane share."""

from __future__ import annotations

import queue
from typing import Any

import numpy as np
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from .nodes import DEADLINE_SECONDS, RunningNode

GRPC = """
[node]
name = "loom"

[grpc]
port = 0
socket = "run/grpc.sock"
"""
STEP = """
[[model]]
name = "step"
factory = "steps:Step"
version = "7"
"""
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


def request(x: int, **parameters: Any) -> Any:
    """A request to the model that adds one."""
    message = pb.ModelInferRequest(model_name="step", id=str(x))
    message.inputs.add(name="x", datatype="INT64", shape=[1, 1]).contents.int64_contents.append(x)
    for name, value in parameters.items():
        message.parameters[name].int64_param = value
    return message


def value(response: Any) -> int:
    return int(np.frombuffer(response.raw_output_contents[0], np.int64)[0])


def socket_of(node: RunningNode) -> str:
    return f"unix:{node.home.folder / 'run' / 'grpc.sock'}"


class Stream:
    """A stream to write to and read from at one's own pace."""

    def __init__(self, stub: Any) -> None:
        self._requests: queue.Queue[Any] = queue.Queue()
        self.call = stub.ModelStreamInfer(iter(self._requests.get, None), timeout=DEADLINE_SECONDS)

    def send(self, *requests: Any) -> None:
        for message in requests:
            self._requests.put(message)

    def end(self) -> None:
        """Send no more."""
        self._requests.put(None)

    def read(self) -> Any:
        return next(self.call)
