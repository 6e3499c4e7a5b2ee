"""LitServe: one LitAPI for each model, speaking the Open Inference Protocol with binary tensors."""

# Annotations are read at run time by LitServe and FastAPI: none from __future__ here.

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import litserve  # type: ignore[import-not-found]
import msgspec
import numpy as np
from fastapi import Depends, Request, Response  # type: ignore[import-not-found]
from numpy.typing import NDArray

from treadle.bench.serving.rivals.model import ModelOptions, RunningModel, metadata_of
from treadle.bench.serving.rivals.wire import HEADER_LENGTH, decode, encode

Arrays = dict[str, NDArray[Any]]


class AppOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the application is told, as JSON in a file."""

    port: int
    device: str
    models: tuple[ModelOptions, ...]
    max_batch: int
    delay_seconds: float
    api_servers: int
    timeout_seconds: float


async def _raw(request: Request) -> tuple[bytes, int | None]:
    length = request.headers.get(HEADER_LENGTH)
    return await request.body(), None if length is None else int(length)


Raw = Annotated[tuple[bytes, int | None], Depends(_raw)]


class Model(litserve.LitAPI):  # type: ignore[misc]
    """One model."""

    def __init__(self, model: ModelOptions, **options: Any) -> None:
        super().__init__(api_path=f"/v2/models/{model.name}/infer", **options)
        self._model = model

    def setup(self, device: str) -> None:
        self._run = RunningModel(msgspec.structs.replace(self._model, device=device))

    def decode_request(self, request: Raw) -> Arrays:
        return decode(*request)

    def batch(self, inputs: list[Arrays]) -> Arrays:
        return {name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]}

    def predict(self, inputs: Arrays) -> Arrays:
        return self._run(inputs)

    def unbatch(self, outputs: Arrays) -> list[Arrays]:
        count = len(next(iter(outputs.values())))
        return [{name: a[k : k + 1] for name, a in outputs.items()} for k in range(count)]

    def encode_response(self, output):  # type: ignore[no-untyped-def]  # FastAPI would use it
        body, header_nbytes = encode(self._model.name, output)
        return Response(
            body,
            media_type="application/octet-stream",
            headers={HEADER_LENGTH: str(header_nbytes)},
        )


def _constant(content: Any) -> Callable[[], Any]:
    async def answer() -> Any:
        return content

    return answer


def main() -> None:
    """Serve what the file named on the command line says."""
    options = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=AppOptions)
    batched = options.max_batch > 1
    apis = [
        Model(
            model,
            max_batch_size=options.max_batch,
            batch_timeout=options.delay_seconds if batched else 0.0,
        )
        for model in options.models
    ]
    server = litserve.LitServer(
        apis,
        accelerator=options.device,
        devices=1,
        workers_per_device=1,
        timeout=options.timeout_seconds,
        healthcheck_path="/v2/health/ready",
    )
    about = {"name": "litserve", "version": litserve.__version__, "extensions": ["binary"]}
    server.app.add_api_route("/v2", _constant(about), methods=["GET"])
    for model in options.models:
        told = _constant(metadata_of(model))
        server.app.add_api_route(f"/v2/models/{model.name}", told, methods=["GET"])
    server.run(
        host="127.0.0.1",
        port=options.port,
        num_api_servers=options.api_servers,
        log_level="warning",
        generate_client_file=False,
        access_log=False,
    )


if __name__ == "__main__":
    main()
