"""LitServe: one LitAPI with one worker, taking and giving the JSON of the V2 protocol."""

from __future__ import annotations

import argparse
from typing import Any

import litserve  # type: ignore[import-not-found]
import litserve.server  # type: ignore[import-not-found]
import numpy as np
import onnxruntime
import orjson
from fastapi import Response  # type: ignore[import-not-found]
from litserve.transport.zmq_transport import ZMQTransport  # type: ignore[import-not-found]
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]


class Identity(litserve.LitAPI):  # type: ignore[misc]
    """Gives back the tensor that it was given."""

    name, output_name = "identity", "output"
    dtype: DTypeLike = np.float32

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads annotations
        tensor = request["inputs"][0]
        return np.array(tensor["data"], self.dtype).reshape(tensor["shape"])

    def batch(self, inputs: list[Array]) -> Array:
        return np.concatenate(inputs)

    def predict(self, batch: Array) -> Array:
        return batch

    def unbatch(self, output: Array) -> list[Array]:
        return list(output[:, None])

    def encode_response(self, output):  # type: ignore[no-untyped-def]  # as above
        tensor = {
            "name": self.output_name,
            "datatype": "FP32",
            "shape": output.shape,
            "data": output.ravel(),
        }
        body = {"model_name": self.name, "outputs": [tensor]}
        # A finished Response spares the API server FastAPI's walk over every element.
        content = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
        return Response(content, media_type="application/json")


class FileType(Identity):
    """Runs an ONNX file with one thread."""

    name, output_name = "file-type", "target_label"
    dtype = np.int32

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        self._path = path

    def setup(self, device: str) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self._path, options, providers=["CPUExecutionProvider"]
        )

    def predict(self, batch: Array) -> Array:
        (label,) = self._session.run(["target_label"], {"bytes": batch})
        return np.asarray(label)


def _mend_fast_queue(server: Any) -> None:
    """Let ``fast_queue`` do what it promises.

    LitServe 0.2.19 ignores it, for it names the transport by a wrong keyword, and hands the two
    addresses of its broker over in the wrong order.
    """
    server.transport_config.transport_type = "zmq"
    create = litserve.server.create_transport_from_config

    def create_in_order(config: Any) -> Any:
        swapped = create(config)
        return ZMQTransport(swapped.frontend_address, swapped.backend_address)

    litserve.server.create_transport_from_config = create_in_order


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--onnx")
    parser.add_argument("--max-batch", type=int, default=1)
    parser.add_argument("--batch-delay-seconds", type=float, default=0.0)
    parser.add_argument("--mended-fast-queue", action="store_true")
    arguments = parser.parse_args()
    options = {
        "max_batch_size": arguments.max_batch,
        "batch_timeout": arguments.batch_delay_seconds if arguments.max_batch > 1 else 0.0,
    }
    api = FileType(arguments.onnx, **options) if arguments.onnx else Identity(**options)
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        devices=1,
        workers_per_device=1,
        fast_queue=arguments.mended_fast_queue,
    )
    if arguments.mended_fast_queue:
        _mend_fast_queue(server)
    server.run(
        host="127.0.0.1",
        port=arguments.port,
        num_api_servers=1,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )


if __name__ == "__main__":
    main()
