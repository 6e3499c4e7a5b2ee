"""The Open Inference Protocol v2 over HTTP, as data: JSON objects and binary tensors.

Source: the KServe "Open Inference Protocol" and Triton's binary tensor data, parameters and
schedule policy extensions. Pure functions: the server calls them for small bodies on its event
loop, and for large ones in another process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import numpy as np
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from treadle.errors import InvalidRequestError
from treadle.serve.elements import from_json, to_json
from treadle.serve.request import InferenceRequest, RequestedOutput
from treadle.serve.tensors import (
    DTYPES,
    Buffer,
    Tensor,
    fixed_nbytes,
    pack_bytes,
)
from treadle.serve.validate import check_bytes
from treadle.types import Priority, TensorSpec

MAX_RANK = 32
_MICROSECONDS = 1e-6

Dimension = Annotated[int, Meta(ge=0, le=2**48)]
Parameters = dict[str, bool | int | float | str]


class _Input(Struct):
    name: str
    shape: list[Dimension]
    datatype: str
    parameters: Parameters = {}
    data: Raw | UnsetType = UNSET


class _Output(Struct):
    name: str
    parameters: Parameters = {}


class _Request(Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: Parameters = {}
    outputs: list[_Output] = []


_decode_request = msgspec.json.Decoder(_Request).decode


def decode_request(
    body: Buffer, header_nbytes: int | None, *, texts: bool = True
) -> InferenceRequest:
    """Read a request.

    Args:
        body: The whole HTTP body: a JSON object, and binary tensor data behind it.
        header_nbytes: Size of the JSON object (``Inference-Header-Content-Length``); None where
            there is nothing else.
        texts: Whether BYTES inputs are taken. Their binary data is walked element by element,
            which is not to be done for a model that has no use for it.

    Raises:
        InvalidRequestError: If it is malformed; says where and what is expected.
    """
    view = memoryview(body)
    if header_nbytes is None:
        header_nbytes = len(view)
    if not 0 <= header_nbytes <= len(view):
        raise InvalidRequestError(
            f"Inference-Header-Content-Length is {header_nbytes}; the body has {len(view)} bytes"
        )
    try:
        request = _decode_request(view[:header_nbytes])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"failed to parse the request JSON: {error}") from None
    tensors, position = [], header_nbytes
    for entry in request.inputs:
        tensor, position = _decode_input(entry, view, position, texts=texts)
        tensors.append(tensor)
    if position != len(view):
        raise InvalidRequestError(
            f"unexpected additional input data: {len(view) - position} bytes after the last input"
        )
    decoded = InferenceRequest(inputs=tensors, id=request.id)
    _apply_parameters(decoded, request.parameters)
    decoded.outputs = [_decode_output(entry, decoded) for entry in request.outputs]
    return decoded


def decode_raw_request(body: Buffer, inputs: Sequence[TensorSpec]) -> InferenceRequest:
    """Read a body that is nothing but the data of a model's only input.

    Raises:
        InvalidRequestError: If the shape cannot be told from the size alone.
    """
    if len(inputs) != 1:
        raise InvalidRequestError(
            f"a raw binary request is for models with one input; this one has {len(inputs)}"
        )
    spec = inputs[0]
    if spec.datatype == "BYTES":
        data: Buffer = pack_bytes([bytes(body)])
        shape = (1,) * len(spec.shape)
    else:
        data, shape = body, _deduce_shape(spec, len(body))
        if fixed_nbytes(spec.datatype, shape) != len(body):
            raise InvalidRequestError(
                f"{len(body)} bytes fill no input '{spec.name}' of {spec.datatype} and shape "
                f"{list(spec.shape)}"
            )
        if spec.datatype == "BOOL":
            _check_truth_values(body, f"input '{spec.name}'")
    return InferenceRequest([Tensor(spec.name, spec.datatype, shape, data)], binary_outputs=True)


def encode_response(
    model: str,
    version: str,
    request_id: str,
    tensors: Sequence[Tensor],
    binary: Sequence[bool],
) -> tuple[bytes, list[Buffer]]:
    """Write an answer: a JSON object, and the data of the outputs that are binary.

    Raises:
        InvalidRequestError: If an output that was asked for as JSON cannot be written as such.
    """
    outputs: list[dict[str, Any]] = []
    blobs: list[Buffer] = []
    for tensor, as_binary in zip(tensors, binary, strict=True):
        entry: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": tensor.shape,
        }
        if as_binary:
            entry["parameters"] = {"binary_data_size": len(tensor.data)}
            blobs.append(tensor.data)
        else:
            entry["data"] = to_json(tensor)
        outputs.append(entry)
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request_id:
        answer["id"] = request_id
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), blobs


def _decode_input(
    entry: _Input, body: memoryview, position: int, *, texts: bool
) -> tuple[Tensor, int]:
    """One input, and where the binary data of the next one starts."""
    where = f"input '{entry.name}'"
    if entry.datatype not in DTYPES:
        raise InvalidRequestError(
            f"{where} has datatype '{entry.datatype}'; allowed: {', '.join(DTYPES)}"
        )
    if len(entry.shape) > MAX_RANK:
        raise InvalidRequestError(f"{where} has {len(entry.shape)} dimensions; at most {MAX_RANK}")
    shape, count = tuple(entry.shape), math.prod(entry.shape)
    nbytes = _binary_size(entry, where)
    if nbytes is None:
        if entry.data is UNSET:
            raise InvalidRequestError(f"{where} has neither data nor binary_data_size")
        return Tensor(
            entry.name, entry.datatype, shape, from_json(entry.data, entry.datatype, shape, where)
        ), position
    if entry.data is not UNSET:
        raise InvalidRequestError(f"{where} has both data and binary_data_size")
    if nbytes > len(body) - position:
        raise InvalidRequestError(
            f"{where} announces {nbytes} bytes of binary data; {len(body) - position} are left"
        )
    tensor = Tensor(entry.name, entry.datatype, shape, body[position : position + nbytes])
    due = fixed_nbytes(entry.datatype, shape)
    if due is None and not texts:
        raise InvalidRequestError(f"{where} is BYTES; this model takes no input of that type")
    if due is None:
        check_bytes(tensor, count)
    elif due != nbytes:
        raise InvalidRequestError(
            f"{where} announces {nbytes} bytes of binary data; shape {entry.shape} of "
            f"{entry.datatype} needs {due}"
        )
    elif entry.datatype == "BOOL":
        _check_truth_values(tensor.data, where)
    return tensor, position + nbytes


def _check_truth_values(data: Buffer, where: str) -> None:
    if np.any(np.frombuffer(data, np.uint8) > 1):
        raise InvalidRequestError(f"{where} is BOOL; allowed bytes: 0 and 1")


def _binary_size(entry: _Input, where: str) -> int | None:
    for name, value in entry.parameters.items():
        if name != "binary_data_size":
            raise InvalidRequestError(
                f"{where} has unknown parameter '{name}'; allowed: binary_data_size"
            )
        if type(value) is not int or value < 0:
            raise InvalidRequestError(
                f"{where} has binary_data_size {value!r}; allowed: a whole number from 0"
            )
        return value
    return None


def _apply_parameters(request: InferenceRequest, parameters: Parameters) -> None:
    for name, value in parameters.items():
        match name:
            case "priority":
                request.priority = _priority(value)
            case "timeout":
                if type(value) is not int or value < 0:
                    raise InvalidRequestError(
                        f"timeout is {value!r}; allowed: microseconds as a whole number from 0"
                    )
                # Zero means, as in Triton, that the model's own limit holds.
                request.timeout_seconds = value * _MICROSECONDS if value else None
            case "binary_data_output":
                request.binary_outputs = _flag(name, value)
            case _:
                raise InvalidRequestError(
                    f"unknown parameter '{name}'; allowed: binary_data_output, priority, timeout"
                )


def _priority(value: bool | int | float | str) -> Priority | None:
    """1, 2 and 3 (and anything above) are the three classes; 0 is the model's own."""
    if isinstance(value, str):
        try:
            return Priority.parse(value)
        except ValueError as error:
            raise InvalidRequestError(str(error)) from None
    if type(value) is not int or value < 0:
        raise InvalidRequestError(
            f"priority is {value!r}; allowed: 0 (the model's own), 1 (critical), 2 (normal), "
            "3 and above (background), or a name"
        )
    return Priority(min(value - 1, Priority.BACKGROUND)) if value else None


def _decode_output(entry: _Output, request: InferenceRequest) -> RequestedOutput:
    binary = request.binary_outputs
    for name, value in entry.parameters.items():
        if name != "binary_data":
            raise InvalidRequestError(
                f"output '{entry.name}' has unknown parameter '{name}'; allowed: binary_data"
            )
        binary = _flag(name, value)
    return RequestedOutput(entry.name, binary)


def _flag(name: str, value: bool | int | float | str) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name} is {value!r}; allowed: true and false")
    return value


def _deduce_shape(spec: TensorSpec, nbytes: int) -> tuple[int, ...]:
    free = [i for i, d in enumerate(spec.shape) if d == -1]
    shape = list(spec.shape)
    if len(free) > 1 and free[0] == 0:
        shape[0] = 1  # without a header a request is a batch of one
        free = free[1:]
    if len(free) > 1:
        raise InvalidRequestError(
            f"a raw binary request cannot say the {len(free)} free dimensions of '{spec.name}'"
        )
    if free:
        item = DTYPES[spec.datatype].itemsize
        fixed = math.prod(d for d in shape if d != -1) * item
        shape[free[0]] = nbytes // fixed if fixed else 0
    return tuple(shape)
