"""What the server does for a request, whichever protocol brought it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from treadle.clock import Clock
from treadle.errors import (
    InvalidRequestError,
    NotFoundError,
    RequestError,
    UnavailableError,
)
from treadle.serve.counts import Counts
from treadle.serve.description import model_config, platform_of
from treadle.serve.engines import Engines
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ModelState, ServedModel
from treadle.serve.parts import Parts
from treadle.serve.repository import Repository
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import Tensor
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.validate import check_inputs
from treadle.types import Priority, TensorSpec

EXTENSIONS = (
    "binary_tensor_data",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """How the server presents itself."""

    name: str
    version: str


class DataPlane:
    """Accepts requests for models and answers questions about them."""

    def __init__(
        self,
        repository: Repository,
        engines: Engines,
        clock: Clock,
        metrics: ServeMetrics,
        info: ServerInfo,
        *,
        clients_may_raise_priority: bool = False,
    ) -> None:
        self.repository = repository
        self.draining = False
        self.started = False
        self._engines = engines
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._counts = Counts(clock, metrics)
        self._info = info
        self._clients_may_raise_priority = clients_may_raise_priority

    @property
    def ready(self) -> bool:
        """Whether clients should send their requests here."""
        return not self.not_ready_reason

    @property
    def not_ready_reason(self) -> str:
        """Why clients should go elsewhere; empty if they should not."""
        if self.draining:
            return "the server is shutting down"
        if not self.started:
            return "models are loading"
        broken = [
            f"{m.name}: {m.reason}"
            for m in self.repository.models
            if m.config.load and m.state is ModelState.UNAVAILABLE and m.reason != "unloaded"
        ]
        return "; ".join(broken)

    @property
    def open_requests(self) -> int:
        """Requests accepted and not yet answered."""
        return self._engines.open_requests

    def waiting(self, model: str) -> int:
        """Requests that wait for ``model``."""
        return self._engines.waiting(model)

    def model_ready(self, name: str, version: str = "") -> bool:
        """Whether a model takes requests; one that is not here does not."""
        try:
            return self.repository.get(name, version).ready and not self.draining
        except NotFoundError:
            return False

    def now(self) -> float:
        return self._clock.now()

    def find(self, name: str, version: str = "") -> ServedModel:
        """The model that a request is for.

        Raises:
            NotFoundError: If there is none of that name or version.
            UnavailableError: If it takes no requests now.
        """
        model = self.repository.get(name, version)
        try:
            self._check_takes_requests(model)
        except UnavailableError as error:
            self._counts.ended(model, model.priority, error)
            raise
        return model

    def submit(
        self,
        model: ServedModel,
        request: InferenceRequest,
        arrived: float,
        *,
        parts: bool = False,
    ) -> Ticket:
        """Accept a request; its answer will come.

        Args:
            model: The model, as ``find`` returned it.
            request: What the caller asks.
            arrived: When its first byte was there, by the data plane's clock.
            parts: Whether the caller takes the answer by ``parts``, and so in several.

        Raises:
            RequestError: If it cannot be accepted; nothing is left behind.
        """
        priority = self._priority(model, request.priority)
        try:
            self._check_takes_requests(model)  # again: its body may have taken long to come
            if request.outputs:
                self._check_outputs(model, request)
            if model.streaming:
                _check_takes_parts(model, request, parts)
            checked = check_inputs(model, request.inputs)
            timeout = model.config.timeout_seconds
            if request.timeout_seconds is not None:
                timeout = min(timeout, request.timeout_seconds)
            ticket = Ticket(
                model=model.name,
                served=model,
                batch_key=checked.batch_key,
                bucket=checked.bucket,
                rows=checked.rows,
                priority=priority,
                arrived=arrived,
                due=arrived + min(timeout, model.config.p99_seconds or timeout),
                deadline=arrived + timeout,
                inputs=checked.tensors,
                length=checked.length,
                answer=self._loop.create_future(),
            )
            if model.streaming:
                ticket.parts = self._parts_of(ticket)
            self._engines.submit(ticket)
        except RequestError as error:
            self._counts.ended(model, priority, error)
            raise
        return ticket

    def count_refusal(self, model: ServedModel, error: RequestError) -> None:
        """Count a request that ended before it could be submitted."""
        self._counts.ended(model, model.priority, error)

    def abandon(self, ticket: Ticket) -> None:
        """Drop a request whose caller has gone."""
        self._engines.abandon(ticket)

    async def answer(self, ticket: Ticket) -> Answer:
        """Wait for the answer to a request. Who is cancelled meanwhile abandons it.

        Raises:
            RequestError: If it could not be answered; says why.
        """
        try:
            answer = await ticket.answer
        except asyncio.CancelledError:
            self._left(ticket)
            raise
        except RequestError as error:
            self._counts.failed(ticket, error)
            raise
        self._counts.answered(ticket, answer)
        return answer

    async def parts(self, ticket: Ticket) -> AsyncGenerator[tuple[list[Tensor], bool]]:
        """The answer to a request in parts, each with whether it is the last.

        A model that answers at once has one part. Where a model yields, the last part comes when
        it has ended, and has no outputs. Who closes this before, or is cancelled, abandons the
        request.

        Raises:
            RequestError: If the answer ends too early; says why.
        """
        if ticket.parts is None:
            answer = await self.answer(ticket)
            yield answer.outputs, True
            return
        first: float | None = None
        try:
            while (part := await ticket.parts.take()) is not None:
                if first is None:
                    first = self._counts.first_part(ticket)
                self._counts.part(ticket)
                yield part, False
        except (asyncio.CancelledError, GeneratorExit):
            self._left(ticket)
            raise
        except RequestError as error:
            self._counts.failed(ticket, error)
            raise
        self._counts.answered(ticket, ticket.answer.result(), first)
        yield [], True

    def _parts_of(self, ticket: Ticket) -> Parts:
        stall_seconds = ticket.served.config.stream_stall_seconds
        return Parts(ticket.answer, stall_seconds, lambda: self._engines.abandon(ticket))

    def _left(self, ticket: Ticket) -> None:
        """The caller of a request has lost interest."""
        self._engines.abandon(ticket)
        if ticket.parts is not None:
            ticket.parts.drop()
        self._counts.left(ticket)

    def select_outputs(
        self, request: InferenceRequest, outputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[bool]]:
        """The outputs that were asked for, and which of them as binary data."""
        if not request.outputs:
            return list(outputs), [request.binary_outputs] * len(outputs)
        by_name = {tensor.name: tensor for tensor in outputs}
        return [by_name[o.name] for o in request.outputs], [o.binary for o in request.outputs]

    def server_metadata(self, *, shared_memory: bool) -> dict[str, Any]:
        """Name, version and extensions; one of them is not for every caller."""
        extensions = (*EXTENSIONS, "system_shared_memory") if shared_memory else EXTENSIONS
        return {
            "name": self._info.name,
            "version": self._info.version,
            "extensions": extensions,
        }

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Name, versions, inputs and outputs of a model that has loaded.

        Raises:
            NotFoundError: If there is none of that name or version.
            UnavailableError: If it has never loaded, so that nothing is known of it.
        """
        model = self._known(name, version)
        return {
            "name": name,
            "versions": [model.config.version],
            "platform": platform_of(model),
            "inputs": [_spec_json(spec) for spec in model.inputs],
            "outputs": [_spec_json(spec) for spec in model.outputs],
        }

    def model_config(self, name: str, version: str = "") -> dict[str, Any]:
        """What can be told of a model in the words of the model configuration extension.

        Raises:
            NotFoundError: If there is none of that name or version.
            UnavailableError: If it has never loaded, so that nothing is known of it.
        """
        return model_config(self._known(name, version))

    def index(self, *, ready_only: bool) -> list[dict[str, str]]:
        """The ``$repository_index_response`` of the model repository extension."""
        return [
            {
                "name": model.name,
                "version": model.config.version,
                "state": str(model.state),
                "reason": model.reason,
            }
            for model in self.repository.models
            if model.ready or not ready_only
        ]

    def statistics(self, name: str | None = None, version: str = "") -> dict[str, Any]:
        """The ``$stats_model_response`` of the statistics extension.

        Raises:
            NotFoundError: If there is no model of that name or version.
        """
        models = self.repository.models if name is None else [self.repository.get(name, version)]
        return {"model_stats": [m.statistics.as_json(m.name, m.config.version) for m in models]}

    def _known(self, name: str, version: str) -> ServedModel:
        """A model that has loaded at least once."""
        model = self.repository.get(name, version)
        if not model.inputs:
            raise UnavailableError(f"model '{name}' is {model.state.lower()}: {model.reason}")
        return model

    def _check_takes_requests(self, model: ServedModel) -> None:
        if self.draining:
            raise UnavailableError("the server is shutting down", retry_after_seconds=1.0)
        if model.state is not ModelState.READY:
            reason = f": {model.reason}" if model.reason else ""
            raise UnavailableError(f"model '{model.name}' is {model.state.lower()}{reason}")

    def _priority(self, model: ServedModel, asked: Priority | None) -> Priority:
        """A client can lower its model's class, but raise it only where that is allowed."""
        if asked is None:
            return model.priority
        return asked if self._clients_may_raise_priority else max(asked, model.priority)

    def _check_outputs(self, model: ServedModel, request: InferenceRequest) -> None:
        known = {spec.name for spec in model.outputs}
        for output in request.outputs:
            if output.name not in known:
                raise InvalidRequestError(
                    f"unexpected inference output '{output.name}' for model '{model.name}'; "
                    f"expected: {', '.join(sorted(known))}"
                )


def _check_takes_parts(model: ServedModel, request: InferenceRequest, parts: bool) -> None:
    """Refuse to give several answers where there is room for one."""
    if not parts:
        raise InvalidRequestError(
            f"model '{model.name}' answers in parts (it is decoupled): ask it over gRPC by "
            f"ModelStreamInfer, or over HTTP by POST /v2/models/{model.name}/infer_stream"
        )
    for output in request.outputs:
        if output.place is not None:
            raise InvalidRequestError(
                f"output '{output.name}' of model '{model.name}' comes in parts, which would "
                "overwrite each other in shared memory"
            )


def _spec_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}
