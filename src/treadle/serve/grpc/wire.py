"""Inference messages between protobuf's wire format and what the server works with.

Tensor data is by far the most of a large message. Protobuf's own parser copies it twice; here it
is left where it is, and only the rest of the message is given to that parser.

Source: the wire format at https://protobuf.dev/programming-guides/encoding and the field numbers
of Triton's ``grpc_service.proto``.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from treadle.errors import InvalidRequestError
from treadle.serve.tensors import Buffer

_MODEL_NAME, _MODEL_VERSION, _ID, _RAW_INPUT = 1, 2, 3, 7
"""Fields of ``ModelInferRequest``."""
_RAW_OUTPUT_TAG = b"\x32"
"""Field 6 of ``ModelInferResponse``, with a length."""
_INFER_RESPONSE_TAG = b"\x12"
"""Field 2 of ``ModelStreamInferResponse``, with a length."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_FIELDS = 4096
"""Inputs, outputs and parameters of one request are far fewer; walking them takes time."""
_LONGEST_VARINT = 10


class SplitRequest(Struct):
    """A ``ModelInferRequest`` with its tensor data apart."""

    model_name: str = ""
    model_version: str = ""
    id: str = ""
    head: bytes = b""
    """The message without its raw data, still encoded."""
    raw: list[Buffer] = []


def split_request(message: bytes, request: SplitRequest | None = None) -> SplitRequest:
    """Take a request apart.

    Args:
        message: The encoded request.
        request: What to fill, for callers who want what was found before an error.

    Raises:
        InvalidRequestError: If it is no protobuf message.
    """
    view, size, position, kept = memoryview(message), len(message), 0, 0
    request, head = request or SplitRequest(), []
    for _ in range(_MOST_FIELDS):
        if position == size:
            break
        start = position
        tag, position = _varint(message, position)
        field, kind = tag >> 3, tag & 7
        if kind == _BYTES:
            length, begin = _varint(message, position)
            position = begin + length
        elif kind == _VARINT:
            _, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:
            raise InvalidRequestError("the request is no ModelInferRequest: unknown wire type")
        if position > size:
            raise InvalidRequestError("the request is no ModelInferRequest: it is cut short")
        if kind != _BYTES:
            continue
        if field == _RAW_INPUT:
            head.append(view[kept:start])
            request.raw.append(view[begin:position])
            kept = position
        elif field == _MODEL_NAME:
            request.model_name = _text(view[begin:position])
        elif field == _MODEL_VERSION:
            request.model_version = _text(view[begin:position])
        elif field == _ID:
            request.id = _text(view[begin:position])
    else:
        raise InvalidRequestError(f"the request has more than {_MOST_FIELDS} inputs and outputs")
    request.head = b"".join((*head, view[kept:]))
    return request


def join_response(head: bytes, data: Sequence[Buffer], *, streamed: bool) -> bytes:
    """Write a ``ModelInferResponse``, or a ``ModelStreamInferResponse`` around it.

    Args:
        head: The encoded response without its outputs' data.
        data: That data, in the order of the outputs.
        streamed: Whether it is a part of a stream.
    """
    parts: list[Buffer] = [head]
    for part in data:
        parts += (_RAW_OUTPUT_TAG, encode_varint(len(part)), part)
    if streamed:
        parts[:0] = (_INFER_RESPONSE_TAG, encode_varint(sum(map(len, parts))))
    return b"".join(parts)


def encode_varint(value: int) -> bytes:
    """A whole number from 0, seven bits to a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number, and what follows it."""
    if position < len(message) and (first := message[position]) < 0x80:
        return first, position + 1  # most have one byte
    value = 0
    for place, byte in enumerate(message[position : position + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, position + place + 1
    raise InvalidRequestError("the request is no ModelInferRequest: a number has no end")


def _text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise InvalidRequestError("a name in the request is not UTF-8 text") from None
