"""Request bodies, right and wrong."""

from __future__ import annotations

import json
from typing import Any

from treadle.serve.oip import decode_request
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import DTYPES, bytes_ends, fixed_nbytes, to_array


def one_input(**changes: Any) -> dict[str, Any]:
    """A good input, but for what is changed; ``None`` leaves a key out."""
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1.5, 2.5]} | changes
    return {key: value for key, value in entry.items() if value is not None}


def request_json(*inputs: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def decode(*inputs: dict[str, Any], **more: Any) -> InferenceRequest:
    return decode_request(request_json(*inputs, **more), None)


def decode_binary(*inputs: tuple[dict[str, Any], bytes], **more: Any) -> InferenceRequest:
    """Decode a request whose inputs all lie behind the JSON object."""
    header = request_json(
        *(
            one_input(data=None, **entry) | {"parameters": {"binary_data_size": len(data)}}
            for entry, data in inputs
        ),
        **more,
    )
    return decode_request(header + b"".join(data for _, data in inputs), len(header))


def values_of(request: InferenceRequest) -> list[Any]:
    return [to_array(tensor).tolist() for tensor in request.inputs]


def assert_sound(request: InferenceRequest) -> None:
    """Nothing in it can reach past its own data, nor be a value that its type does not have."""
    assert type(request) is InferenceRequest
    for tensor in request.inputs:
        assert tensor.datatype in DTYPES
        count = 1
        for size in tensor.shape:
            assert type(size) is int
            assert size >= 0
            count *= size
        due = fixed_nbytes(tensor.datatype, tensor.shape)
        if due is None:
            bytes_ends(tensor.data, count)
        else:
            assert len(tensor.data) == due
        if tensor.datatype == "BOOL":
            assert set(bytes(tensor.data)) <= {0, 1}
        assert to_array(tensor).shape == tensor.shape
    assert request.timeout_seconds is None or request.timeout_seconds > 0
    assert all(type(output.binary) is bool for output in request.outputs)
