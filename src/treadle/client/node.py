"""A client of a running node, over its local socket or over HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from treadle.errors import RequestError, UnavailableError
from treadle.serve.tensors import Array, Tensor, to_array

_HEADER_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class EncodedRequest:
    """A request body that can be sent any number of times."""

    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request, not yet looked into."""

    status: int
    body: bytes
    header_length: str | None
    """How many of its bytes are JSON, as the server says it; None: all."""

    @property
    def error(self) -> str:
        """What an answer that is an error says."""
        return _error_text(self.body)


def encode_request(
    tensors: Sequence[Tensor], parameters: Mapping[str, int | str] | None = None
) -> EncodedRequest:
    """Write a request with binary tensors that asks for binary outputs."""
    header = orjson.dumps(
        {
            "parameters": {**(parameters or {}), "binary_data_output": True},
            "inputs": [
                {
                    "name": tensor.name,
                    "datatype": tensor.datatype,
                    "shape": tensor.shape,
                    "parameters": {"binary_data_size": len(tensor.data)},
                }
                for tensor in tensors
            ],
        }
    )
    return EncodedRequest(
        b"".join([header, *(tensor.data for tensor in tensors)]),
        {_HEADER_LENGTH: str(len(header)), "Content-Type": "application/octet-stream"},
    )


class NodeClient:
    """An asynchronous client; use it as a context manager."""

    def __init__(
        self,
        socket: Path | None = None,
        url: str = "http://treadle",
        *,
        token: str | None = None,
        connections: int = 100,
    ) -> None:
        """Prepare to talk to a node.

        Args:
            socket: Local socket to use; without, ``url`` is reached over the network.
            url: Scheme, host and port.
            token: Sent along; ``TREADLE_HTTP_TOKEN`` unless given.
            connections: At most so many at a time; 0 for no limit.
        """
        self._where = str(socket) if socket else url
        connector: aiohttp.BaseConnector = (
            aiohttp.UnixConnector(str(socket), limit=connections)
            if socket
            else aiohttp.TCPConnector(limit=connections)
        )
        token = token or os.environ.get("TREADLE_HTTP_TOKEN", "")
        self._session = aiohttp.ClientSession(
            url,
            connector=connector,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, path: str) -> Any:
        """GET a JSON document.

        Raises:
            ConnectionError: If no node answers.
            RequestError: If the node answers with an error.
        """
        return await self._json("GET", path)

    async def post(self, path: str, content: Any = None) -> Any:
        """POST a JSON document and return the answer's.

        Raises:
            ConnectionError: If no node answers.
            RequestError: If the node answers with an error.
        """
        return await self._json("POST", path, orjson.dumps(content or {}))

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """GET something that comes in parts.

        Raises:
            ConnectionError: If no node answers.
            RequestError: If the node answers with an error.
        """
        try:
            async with self._session.get(path) as response:
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise _error(response.status, await response.read())
                async for part in response.content.iter_any():
                    yield part
        except (aiohttp.ClientError, FileNotFoundError) as error:
            raise ConnectionError(_nobody(self._where)) from error

    async def infer(self, model: str, request: EncodedRequest) -> dict[str, Array]:
        """Send a request and return the outputs by name; BYTES as arrays of ``bytes``.

        Raises:
            ConnectionError: If no node answers.
            RequestError: If the node answers with an error.
        """
        path = f"/v2/models/{model}/infer"
        _, headers, body = await self._send("POST", path, request.body, request.headers)
        size = int(headers.get(_HEADER_LENGTH, len(body)))
        return _decode_outputs(body, size)

    async def send(self, model: str, request: EncodedRequest) -> int:
        """Send a request, read its answer to the end and return only its status code.

        Raises:
            ConnectionError: If the connection cannot be made or breaks.
        """
        return (await self.ask(model, request)).status

    async def ask(self, model: str, request: EncodedRequest) -> Answer:
        """Send a request and return its answer as it is, an error too.

        Raises:
            ConnectionError: If the connection cannot be made or breaks.
        """
        try:
            async with self._session.post(
                f"/v2/models/{model}/infer", data=request.body, headers=request.headers
            ) as response:
                body = await response.read()
                return Answer(response.status, body, response.headers.get(_HEADER_LENGTH))
        except aiohttp.ClientError as error:
            raise ConnectionError(f"no answer from {self._where}: {error}") from error

    async def _json(self, method: str, path: str, body: bytes | None = None) -> Any:
        _, _, answer = await self._send(method, path, body, {"Content-Type": "application/json"})
        return orjson.loads(answer) if answer else None

    async def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with self._session.request(method, path, data=body, headers=headers) as response:
                content = await response.read()
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise _error(response.status, content)
                return response.status, response.headers, content
        except (aiohttp.ClientError, FileNotFoundError) as error:
            raise ConnectionError(_nobody(self._where)) from error


def _nobody(where: str) -> str:
    return f"no node answers on {where}; start one with treadle up FILE.toml"


def _error_text(content: bytes) -> str:
    try:
        return str(orjson.loads(content)["error"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return content.decode(errors="replace")[:500]


def _error(status: int, content: bytes) -> RequestError:
    text = _error_text(content)
    kind = UnavailableError if status == HTTPStatus.SERVICE_UNAVAILABLE else RequestError
    return kind(f"{text} (HTTP {status})")


def _decode_outputs(body: bytes, header_nbytes: int) -> dict[str, Array]:
    answer, position = orjson.loads(body[:header_nbytes]), header_nbytes
    outputs = {}
    for entry in answer["outputs"]:
        size = entry["parameters"]["binary_data_size"]
        data = body[position : position + size]
        position += size
        tensor = Tensor(entry["name"], entry["datatype"], tuple(entry["shape"]), data)
        outputs[tensor.name] = to_array(tensor)
    return outputs
