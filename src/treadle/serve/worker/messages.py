"""What the node and a worker say to each other: small messages beside a shared arena.

Tensor data never travels here. It lies in an arena at the offsets that a message gives.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from treadle.serve.padding import PaddingConfig

PlainSpec = tuple[str, str, tuple[int, ...]]
"""Name, datatype and shape of an input or output."""
Signature = tuple[tuple[PlainSpec, ...], tuple[PlainSpec, ...]]
"""Inputs and outputs of a model."""


class Slice(Struct, array_like=True, frozen=True):
    """A tensor in an arena, in wire form."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    row_ends: tuple[int, ...] = ()
    """For BYTES: where each row ends, in bytes from ``offset``; rows of other types are equal."""


class ModelSetup(Struct, frozen=True):
    """All that a worker needs to load one model."""

    name: str
    onnx: str | None
    factory: str | None
    torchscript: str | None
    exported: str | None
    inputs: tuple[PlainSpec, ...]
    outputs: tuple[PlainSpec, ...]
    parameters: dict[str, Any]
    device: str
    priority: int
    threads: int
    max_batch: int
    folder: str
    dtype: str = ""
    """Of the model's floating point, as PyTorch names it; empty: as it is."""
    compile: bool = False
    cuda_graph: bool = False
    graph_memory_bytes: int = 0
    """What its graphs may keep of the device's memory."""
    warm_up: tuple[int, ...] = ()
    """Batch sizes to run before requests come."""
    sm_share: float = 1.0
    """Of a GPU's SMs, what the model's kernels may use."""
    timed: bool = False
    """Have batches timed by the device's clock, where it has one."""
    streaming: bool = False
    """Whether it yields its answers in parts."""
    padding: PaddingConfig | None = None

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"


class Load(Struct, frozen=True, tag=True):
    """Node to worker, first and once: what to host."""

    models: tuple[ModelSetup, ...]
    nice: int

    @property
    def concurrent(self) -> bool:
        """Whether its models run side by side: on a GPU."""
        return any(model.on_gpu for model in self.models)

    @property
    def streaming(self) -> bool:
        """Whether one of its models answers in parts."""
        return any(model.streaming for model in self.models)


class Loaded(Struct, frozen=True, tag=True):
    """Worker to node: every model is ready; its inputs and outputs by name."""

    signatures: dict[str, Signature]


class LoadFailed(Struct, frozen=True, tag=True):
    """Worker to node: a model cannot be loaded. The worker ends."""

    model: str
    reason: str


class Run(Struct, array_like=True, frozen=True):
    """Node to worker: run a batch whose inputs lie in the slot's input arena."""

    batch: int
    slot: int
    model: str
    rows: int
    inputs: tuple[Slice, ...]


class Taken(Struct, frozen=True, tag=True):
    """Node to worker: it has taken the oldest part of a batch that it had not."""

    batch: int


class Stop(Struct, frozen=True, tag=True):
    """Node to worker: no more parts of this batch are wanted."""

    batch: int


class Part(Struct, array_like=True, frozen=True, tag=True):
    """Worker to node: a part of an answer; it lies in the slot's output arena until ``Taken``."""

    batch: int
    outputs: tuple[Slice, ...]


class Done(Struct, array_like=True, frozen=True, tag=True):
    """Worker to node: the batch ran; its outputs lie in its slot's output arena.

    After parts, it has no outputs and says that there are no more.
    """

    batch: int
    outputs: tuple[Slice, ...]
    input_seconds: float
    run_seconds: float
    output_seconds: float
    fitted_rows: int = 0
    """How many rows fit into the device's memory, if not all did at once; else 0."""
    device_seconds: float = 0.0
    """By the device's clock, copies included, for a model that is to be timed; else 0."""
    first_part_seconds: float | None = None
    """From the start to the first part, if there was one."""


class Failed(Struct, array_like=True, frozen=True, tag=True):
    """Worker to node: the model raised, or returned what it may not."""

    batch: int
    reason: str
    spoilt: bool = False
    """Nothing can run in this process any more: it ends."""


ToWorker = Load | Taken | Stop | tuple[Run, ...]
FromWorker = Loaded | LoadFailed | tuple[Done | Failed | Part, ...]
"""Short batches travel together: for each, a system call would cost as much as its run."""

encode = msgspec.msgpack.Encoder().encode
decode_to_worker = msgspec.msgpack.Decoder(ToWorker).decode
decode_from_worker = msgspec.msgpack.Decoder(FromWorker).decode

MAX_MESSAGE_BYTES = 1 << 17
"""Messages are kept below this, so that one always fits a socket's buffer."""
_MAX_ANSWER_BYTES = MAX_MESSAGE_BYTES - 8  # an array's head is at most 5
MAX_REASON_CHARS = 8000
MOST_UNTAKEN = 8
"""Parts of an answer that the node has not taken yet; a worker yields no more until it has."""


def encode_load(message: Load) -> bytes:
    """Encode what to host.

    Raises:
        ValueError: If it cannot be sent to a worker, with the reason.
    """
    try:
        data = encode(message)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise ValueError(f"its parameters cannot be sent to a worker: {error}") from None
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"its parameters take {len(data)} bytes; allowed: {MAX_MESSAGE_BYTES}. Put more into "
            "a file beside the configuration"
        )
    return data


def encode_answer(answer: Done | Failed) -> bytes:
    """Encode an answer so that it fits a message."""
    data = encode(answer)
    if len(data) <= _MAX_ANSWER_BYTES:
        return data
    # Only thousands of rows of several texts come to this; who asked for fewer is answered.
    assert isinstance(answer, Done)
    ends = [len(place.row_ends) for place in answer.outputs if place.row_ends]
    return encode(
        Failed(answer.batch, f"{max(ends)} rows of {len(ends)} BYTES outputs are too many")
    )


class Answers:
    """Encoded answers that will travel in one message."""

    def __init__(self) -> None:
        self._answers: list[msgspec.Raw] = []
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def have_room_for(self, answer: bytes) -> bool:
        return self._nbytes + len(answer) <= _MAX_ANSWER_BYTES

    def add(self, answer: bytes) -> None:
        self._answers.append(msgspec.Raw(answer))
        self._nbytes += len(answer)

    def take(self) -> bytes:
        """The message; no answers are left."""
        message = encode(self._answers)
        self._answers, self._nbytes = [], 0
        return message


def shorten(reason: str) -> str:
    """Cut a reason to what a message may hold, keeping its end: that is where the cause is."""
    reason = reason.encode(errors="replace").decode()  # file names need not be text
    if len(reason) <= MAX_REASON_CHARS:
        return reason
    return "… " + reason[-MAX_REASON_CHARS:]
