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
import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from treadle.errors import InvalidRequestError
from treadle.serve.elements import from_json, to_json
from treadle.serve.parameters import (
    Parameters,
    apply_parameters,
    flag,
    place_parameters,
    shared_place,
)
from treadle.serve.request import InferenceRequest, RequestedOutput
from treadle.serve.tensors import (
    DTYPES,
    Buffer,
    SharedTensor,
    Tensor,
    fixed_nbytes,
    pack_bytes,
)
from treadle.serve.validate import check_data, check_shape, check_truth_values
from treadle.types import TensorSpec

FINAL = "triton_final_response"

Dimension = Annotated[int, Meta(ge=0, le=2**48)]


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
    apply_parameters(decoded, request.parameters)
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
            check_truth_values(body, f"input '{spec.name}'")
    return InferenceRequest([Tensor(spec.name, spec.datatype, shape, data)], binary_outputs=True)


def encode_response(
    model: str,
    version: str,
    request_id: str,
    tensors: Sequence[Tensor],
    binary: Sequence[bool],
    final: bool | None = None,
) -> tuple[bytes, list[Buffer]]:
    """Write an answer: a JSON object, and the data of the outputs that are binary.

    Args:
        model: Name of the model.
        version: Its version.
        request_id: As the client gave it.
        tensors: The outputs.
        binary: Which of them are binary.
        final: In a stream, whether no other part of the answer follows; None outside of one.

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
        if isinstance(tensor, SharedTensor):
            entry["parameters"] = place_parameters(tensor.place)
        elif as_binary:
            entry["parameters"] = {"binary_data_size": len(tensor.data)}
            blobs.append(tensor.data)
        else:
            entry["data"] = to_json(tensor)
        outputs.append(entry)
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": outputs}
    if request_id:
        answer["id"] = request_id
    if final is not None:
        answer["parameters"] = {FINAL: final}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), blobs


def _decode_input(
    entry: _Input, body: memoryview, position: int, *, texts: bool
) -> tuple[Tensor, int]:
    """One input, and where the binary data of the next one starts."""
    where = f"input '{entry.name}'"
    check_shape(entry.name, entry.datatype, entry.shape)
    shape = tuple(entry.shape)
    nbytes = _binary_size(entry, where)
    if place := shared_place(entry.parameters, where, "binary_data_size"):
        if nbytes is not None or entry.data is not UNSET:
            raise InvalidRequestError(f"{where} has both shared memory and other data")
        return SharedTensor(entry.name, entry.datatype, shape, b"", place), position
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
    check_data(tensor, texts=texts)
    return tensor, position + nbytes


def _binary_size(entry: _Input, where: str) -> int | None:
    value = entry.parameters.get("binary_data_size")
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise InvalidRequestError(
            f"{where} has binary_data_size {value!r}; allowed: a whole number from 0"
        )
    return value


def _decode_output(entry: _Output, request: InferenceRequest) -> RequestedOutput:
    where, binary = f"output '{entry.name}'", request.binary_outputs
    place = shared_place(entry.parameters, where, "binary_data")
    if "binary_data" in entry.parameters:
        binary = flag("binary_data", entry.parameters["binary_data"])
        if binary and place is not None:
            raise InvalidRequestError(f"{where} has both shared memory and binary_data")
    return RequestedOutput(entry.name, binary, place)


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
