"""What the server does for a request, whichever protocol brought it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from treadle.clock import Clock
from treadle.errors import (
    AbandonedError,
    DeadlineError,
    InvalidRequestError,
    ModelError,
    RequestError,
    UnavailableError,
)
from treadle.serve.engines import Engines
from treadle.serve.metrics import ServeMetrics
from treadle.serve.model import ModelState, ServedModel
from treadle.serve.repository import Repository
from treadle.serve.request import InferenceRequest
from treadle.serve.tensors import Tensor
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.validate import check_inputs
from treadle.types import Priority, TensorSpec

EXTENSIONS = (
    "binary_tensor_data",
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
        self._metrics = metrics
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
            self._ended(model, model.priority, error)
            raise
        return model

    def submit(self, model: ServedModel, request: InferenceRequest, arrived: float) -> Ticket:
        """Accept a request; its answer will come.

        Args:
            model: The model, as ``find`` returned it.
            request: What the caller asks.
            arrived: When its first byte was there, by the data plane's clock.

        Raises:
            RequestError: If it cannot be accepted; nothing is left behind.
        """
        priority = self._priority(model, request.priority)
        try:
            self._check_takes_requests(model)  # again: its body may have taken long to come
            if request.outputs:
                self._check_outputs(model, request)
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
            self._engines.submit(ticket)
        except RequestError as error:
            self._ended(model, priority, error)
            raise
        return ticket

    def count_refusal(self, model: ServedModel, error: RequestError) -> None:
        """Count a request that ended before it could be submitted."""
        self._ended(model, model.priority, error)

    def abandon(self, ticket: Ticket) -> None:
        """Drop a request whose caller has gone."""
        self._engines.abandon(ticket)

    async def answer(self, ticket: Ticket) -> Answer:
        """Wait for the answer to a request.

        Raises:
            RequestError: If it could not be answered; says why.
        """
        model = ticket.served
        try:
            answer = await ticket.answer
        except RequestError as error:
            if not isinstance(error, AbandonedError):
                model.statistics.fail.add(self._clock.now() - ticket.arrived)
            self._ended(model, ticket.priority, error)
            raise
        now = self._clock.now()
        total = now - ticket.arrived
        model.standing.answered(total, now)
        if model.patience is not None:
            model.patience.observe(total)
        model.statistics.success.add(total)
        model.statistics.queue.add(answer.queue_seconds)
        self._metrics.answered(
            model.name, ticket.priority, answer.queue_seconds, answer.run_seconds, total
        )
        return answer

    def select_outputs(
        self, request: InferenceRequest, outputs: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[bool]]:
        """The outputs that were asked for, and which of them as binary data."""
        if not request.outputs:
            return list(outputs), [request.binary_outputs] * len(outputs)
        by_name = {tensor.name: tensor for tensor in outputs}
        return [by_name[o.name] for o in request.outputs], [o.binary for o in request.outputs]

    def server_metadata(self) -> dict[str, Any]:
        return {
            "name": self._info.name,
            "version": self._info.version,
            "extensions": EXTENSIONS,
        }

    def model_metadata(self, name: str, version: str = "") -> dict[str, Any]:
        """Name, versions, inputs and outputs of a model that has loaded.

        Raises:
            NotFoundError: If there is none of that name or version.
            UnavailableError: If it has never loaded, so that nothing is known of it.
        """
        model = self.repository.get(name, version)
        if not model.inputs:
            raise UnavailableError(f"model '{name}' is {model.state.lower()}: {model.reason}")
        platform = "onnxruntime_onnx" if model.config.onnx else "python"
        return {
            "name": name,
            "versions": [model.config.version],
            "platform": platform,
            "inputs": [_spec_json(spec) for spec in model.inputs],
            "outputs": [_spec_json(spec) for spec in model.outputs],
        }

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

    def _ended(self, model: ServedModel, priority: Priority, error: RequestError) -> None:
        """Count a request that was not answered."""
        outcome = _outcome(error)
        self._metrics.ended(model.name, priority, outcome)
        if outcome in _MISSES:
            model.standing.missed(outcome, str(error), self._clock.now())

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


_MISSES = frozenset(("expired", "refused", "failed"))
"""How requests end that a client may hold against the model."""


def _outcome(error: RequestError) -> str:
    match error:
        case DeadlineError():
            return "expired"
        case UnavailableError():
            return "refused"
        case ModelError():
            return "failed"
        case AbandonedError():
            return "abandoned"
        case _:
            return "invalid"


def _spec_json(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": spec.shape}
