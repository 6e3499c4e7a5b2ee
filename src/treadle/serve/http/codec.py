"""Decodes and encodes bodies: small ones at once, large ones in a process of their own.

JSON with a million numbers takes a tenth of a second to read, and the interpreter does nothing
else meanwhile. A thread would not help; another process does.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence

from treadle.errors import InvalidRequestError, TooLargeError
from treadle.serve import oip
from treadle.serve.helper import HelperProcess
from treadle.serve.model import ServedModel
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import Buffer, Tensor
from treadle.types import TensorSpec

_SMALL_JSON_BYTES = 48 << 10
_SMALL_TENSOR_BYTES = 16 << 10
"""About a millisecond's worth, of reading and of writing JSON."""

_PIECE_BYTES = 8 << 10
_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


class Codec:
    """Turns bodies into requests and answers into bodies without holding up the event loop."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self.helper = HelperProcess()

    def decode_small(
        self, body: bytes, header_nbytes: int | None, inputs: Sequence[TensorSpec]
    ) -> InferenceRequest | None:
        """Read a request body at once; None if it is too large for that.

        Raises:
            InvalidRequestError: If it is malformed.
        """
        if header_nbytes == 0:
            return oip.decode_raw_request(body, inputs)
        texts = any(spec.datatype == "BYTES" for spec in inputs)
        # A request that is all small is the common one; only then ask what exactly is large.
        if len(body) > _SMALL_JSON_BYTES:
            json_nbytes = len(body) if header_nbytes is None else header_nbytes
            # BYTES elements are walked one by one, so binary data of that type is slow, too.
            if json_nbytes > _SMALL_JSON_BYTES or texts:
                return None
        return oip.decode_request(body, header_nbytes, texts=texts)

    async def decode_large(self, body: bytes, header_nbytes: int | None) -> InferenceRequest:
        """Read a large request body in another process.

        Raises:
            InvalidRequestError: If it is malformed.
        """
        return await self.helper.run(_decode_elsewhere, body, header_nbytes)

    def encode_small(
        self,
        model: ServedModel,
        request_id: str,
        tensors: list[Tensor],
        binary: list[bool],
        final: bool | None = None,
    ) -> tuple[bytes, list[Buffer]] | None:
        """Write an answer at once, JSON and binary tensors; None if it is too large for that.

        Raises:
            InvalidRequestError: If an output that was asked for as JSON cannot be written so.
        """
        nbytes = 0
        for tensor, as_binary in zip(tensors, binary, strict=True):
            if not as_binary:
                nbytes += len(tensor.data)
        if nbytes > _SMALL_TENSOR_BYTES:
            return None
        version = model.config.version
        return oip.encode_response(model.name, version, request_id, tensors, binary, final)

    async def encode_large(
        self,
        model: ServedModel,
        request_id: str,
        tensors: list[Tensor],
        binary: list[bool],
        final: bool | None = None,
    ) -> tuple[bytes, list[Buffer]]:
        """Write a large answer in another process.

        Raises:
            InvalidRequestError: If an output that was asked for as JSON cannot be written so.
        """
        for tensor in tensors:
            tensor.data = bytes(tensor.data)  # views do not travel between processes
        version = model.config.version
        return await self.helper.run(
            oip.encode_response, model.name, version, request_id, tensors, binary, final
        )

    async def decompress(self, body: bytes, encoding: str) -> bytes:
        """Undo a content encoding.

        Raises:
            InvalidRequestError: If the encoding is not known or the data is not of it.
            TooLargeError: If it unpacks to more than a body may have.
        """
        if encoding not in _WINDOW_BITS:
            raise InvalidRequestError(
                f"unsupported Content-Encoding '{encoding}'; allowed: {', '.join(_WINDOW_BITS)}"
            )
        return await asyncio.to_thread(self._inflate, body, encoding)

    def close(self) -> None:
        """End the helper process."""
        self.helper.close()

    def _inflate(self, body: bytes, encoding: str) -> bytes:
        parts, size, position, ended = [], 0, 0, False
        unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
        while not ended:
            # In pieces: what an unpacker leaves over is copied, and members can be tiny.
            piece = body[position : position + _PIECE_BYTES]
            try:
                parts.append(unpacker.decompress(piece, self._max_body_bytes + 1 - size))
            except zlib.error as error:
                raise InvalidRequestError(f"the body is not valid {encoding}: {error}") from None
            size += len(parts[-1])
            if size > self._max_body_bytes:
                raise TooLargeError(f"the body unpacks to more than {self._max_body_bytes} bytes")
            position += len(piece) - len(unpacker.unused_data)
            ended = unpacker.eof and position == len(body)
            if not ended and position == len(body):
                raise InvalidRequestError(f"the body ends in the middle of its {encoding} data")
            if unpacker.eof and not ended:
                if encoding != "gzip":
                    raise InvalidRequestError(f"more bytes follow the body's {encoding} data")
                unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])  # of the next member
        return b"".join(parts)


def _decode_elsewhere(body: bytes, header_nbytes: int | None) -> InferenceRequest:
    request = oip.decode_request(body, header_nbytes)
    for tensor in request.inputs:
        tensor.data = bytes(tensor.data)  # views do not travel between processes
    return request
