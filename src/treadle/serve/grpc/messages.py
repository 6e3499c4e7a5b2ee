"""Inference requests and answers in protobuf's terms, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb

from treadle.errors import InvalidRequestError
from treadle.serve.grpc.wire import SplitRequest, join_response, split_request
from treadle.serve.oip import FINAL
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
    pack_bytes,
    raw_bytes,
)
from treadle.serve.validate import check_data, check_shape

EMPTY_FINAL = "triton_enable_empty_final_response"

_CONTENTS: Mapping[str, str] = MappingProxyType(
    {
        "BOOL": "bool_contents",
        **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
        **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
        "INT64": "int64_contents",
        "UINT64": "uint64_contents",
        "FP32": "fp32_contents",
        "FP64": "fp64_contents",
        "BYTES": "bytes_contents",
    }
)
"""Where a datatype's typed contents are. The protocol has no place for FP16 and BF16."""


def decode_message(message: bytes) -> InferenceRequest:
    """Read a whole request, such that it can travel to another process and back.

    Raises:
        InvalidRequestError: If it is malformed; says where and what is expected.
    """
    request = decode_request(split_request(message))
    for tensor in request.inputs:
        tensor.data = bytes(tensor.data)
    return request


def decode_request(split: SplitRequest, *, texts: bool = True) -> InferenceRequest:
    """Read a request whose raw data was set apart.

    Args:
        split: The request.
        texts: Whether raw BYTES inputs are taken: they are walked element by element.

    Raises:
        InvalidRequestError: If it is malformed; says where and what is expected.
    """
    try:
        message = pb.ModelInferRequest.FromString(split.head)
    except DecodeError as error:
        raise InvalidRequestError(f"the request is no ModelInferRequest: {error}") from None
    request = InferenceRequest(inputs=[], id=message.id, binary_outputs=True)
    parameters = _parameters(message.parameters, "the request")
    apply_parameters(request, parameters, (EMPTY_FINAL,))
    request.empty_final = flag(EMPTY_FINAL, parameters.get(EMPTY_FINAL, False))
    if not request.binary_outputs:
        raise InvalidRequestError("binary_data_output is False; over gRPC, outputs are binary data")
    raw = iter(split.raw)
    for entry in message.inputs:
        request.inputs.append(_decode_input(entry, raw if split.raw else None, texts=texts))
    if left := sum(1 for _ in raw):
        raise InvalidRequestError(f"unexpected additional input data: {left} raw_input_contents")
    for output in message.outputs:
        where = f"output '{output.name}'"
        place = shared_place(_parameters(output.parameters, where), where, "")
        request.outputs.append(RequestedOutput(output.name, True, place))
    return request


def encode_answer(
    model: str,
    version: str,
    request_id: str,
    tensors: Sequence[Tensor],
    *,
    final: bool | None = None,
) -> bytes:
    """Write an answer.

    Args:
        model: Name of the model.
        version: Its version.
        request_id: As the client gave it.
        tensors: The outputs.
        final: In a stream, whether no other answer to the request follows; None outside of one.
    """
    message = pb.ModelInferResponse(model_name=model, model_version=version, id=request_id)
    for tensor in tensors:
        output = message.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if isinstance(tensor, SharedTensor):
            for name, value in place_parameters(tensor.place).items():
                kind = "string_param" if isinstance(value, str) else "int64_param"
                setattr(output.parameters[name], kind, value)
    if final is not None:
        message.parameters[FINAL].bool_param = final
    # Clients count: an output in shared memory has an entry, too, and nothing in it.
    data = [tensor.data for tensor in tensors]
    return join_response(message.SerializeToString(), data, streamed=final is not None)


def encode_error(request_id: str, text: str) -> bytes:
    """Write an error that answers one request of a stream."""
    message = pb.ModelStreamInferResponse(error_message=text)
    # Who sent several at a time must know whose error it is.
    message.infer_response.id = request_id
    message.infer_response.parameters[FINAL].bool_param = True
    encoded: bytes = message.SerializeToString()
    return encoded


def _parameters(given: Mapping[str, Any], where: str) -> Parameters:
    parameters: Parameters = {}
    for name, value in given.items():
        kind = value.WhichOneof("parameter_choice")
        if kind is None:
            raise InvalidRequestError(f"{where}: parameter '{name}' has no value")
        parameters[name] = getattr(value, kind)
    return parameters


def _decode_input(entry: Any, raw: Any, *, texts: bool) -> Tensor:
    """One input; ``raw`` gives the next raw data, None where the request brings none."""
    name, datatype, shape = entry.name, entry.datatype, tuple(entry.shape)
    where = f"input '{name}'"
    check_shape(name, datatype, shape)
    if min(shape, default=0) < 0:
        raise InvalidRequestError(f"{where} has shape {list(shape)}; allowed: sizes from 0")
    place = shared_place(_parameters(entry.parameters, where), where, "")
    typed = entry.HasField("contents")
    if place is not None:
        if typed:
            raise InvalidRequestError(f"{where} has both shared memory and contents")
        return SharedTensor(name, datatype, shape, b"", place)
    if raw is None:
        return Tensor(name, datatype, shape, _typed(entry.contents, datatype, shape, where))
    if typed:
        raise InvalidRequestError(f"{where} has contents beside raw_input_contents")
    data = next(raw, None)
    if data is None:
        raise InvalidRequestError(f"{where} has no raw_input_contents; each input needs one")
    tensor = Tensor(name, datatype, shape, data)
    check_data(tensor, texts=texts)
    return tensor


def _typed(contents: Any, datatype: str, shape: tuple[int, ...], where: str) -> Buffer:
    """Typed contents in wire form."""
    field = _CONTENTS.get(datatype)
    if field is None:
        raise InvalidRequestError(f"{where} of {datatype} has no contents; use raw_input_contents")
    for other, _ in contents.ListFields():
        if other.name != field:
            raise InvalidRequestError(
                f"{where} of {datatype} has {other.name}; allowed: {field} or raw_input_contents"
            )
    values, count = getattr(contents, field), 1
    for size in shape:
        count *= size
    if len(values) != count:
        raise InvalidRequestError(
            f"{where}: {field} has {len(values)} elements; shape {list(shape)} needs {count}"
        )
    if datatype == "BYTES":
        return pack_bytes(values)
    try:
        return raw_bytes(np.fromiter(values, DTYPES[datatype], count))
    except OverflowError:
        limits = np.iinfo(np.dtype(DTYPES[datatype].name))
        raise InvalidRequestError(
            f"{where} of {datatype}: a number is out of range; allowed: {limits.min} to "
            f"{limits.max}"
        ) from None
