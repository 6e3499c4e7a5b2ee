"""The floor: a bare ASGI application, with nothing between uvicorn and the work.

Without ``--onnx`` it answers every request with the body it got. With it, it is what one would
write by hand for one model and one protocol: parse, run, format, all on the event loop.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = Callable[[bytes], bytes]


def _echo(body: bytes) -> bytes:
    return body


def _onnx(path: str) -> Answer:
    import numpy as np
    import onnxruntime
    import orjson

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def answer(body: bytes) -> bytes:
        tensor = orjson.loads(body)["inputs"][0]
        batch = np.array(tensor["data"], np.int32).reshape(tensor["shape"])
        (label,) = session.run(["target_label"], {"bytes": batch})
        output = {
            "name": "target_label",
            "datatype": "FP32",
            "shape": label.shape,
            "data": label.ravel(),
        }
        response = {"model_name": "file-type", "outputs": [output]}
        return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)

    return answer


async def _read(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


def application(answer: Answer) -> Callable[[Message, Receive, Send], Awaitable[None]]:
    """The ASGI application that gives ``answer`` of every request body."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = await _read(receive)
        content = answer(body) if scope["method"] == "POST" else b""
        length = str(len(content)).encode()
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-length", length), (b"content-type", b"application/json")],
            }
        )
        await send({"type": "http.response.body", "body": content})

    return app


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--onnx")
    arguments = parser.parse_args()
    answer = _onnx(arguments.onnx) if arguments.onnx else _echo
    uvicorn.run(
        application(answer),
        host="127.0.0.1",
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
