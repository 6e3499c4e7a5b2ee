"""OpenTelemetry spans, where its SDK is installed and told to export.

Spans are written after the fact, from times that are taken anyway: tracing that is switched off
costs nothing, and one that is on costs no more than the span.
"""

from __future__ import annotations

import os
import time
from typing import Any

from treadle.serve.ticket import Answer, Ticket

_NS = 1_000_000_000
_EXPORTER_VARIABLES = (
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
)


class Tracer:
    """Writes three spans a request: the whole, its wait and its run."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry import propagate, trace

        self._tracer = provider.get_tracer("treadle")
        self._propagate = propagate
        self._trace = trace

    def record(
        self,
        ticket: Ticket,
        answer: Answer,
        headers: dict[bytes, bytes],
        request_id: str,
        now: float,
    ) -> None:
        """Write the spans of an answered request, below the caller's own span if it sent one."""
        carrier = {k.decode("latin-1"): v.decode("latin-1") for k, v in headers.items()}
        offset = time.time() - now  # from the monotonic clock to the calendar
        span = self._tracer.start_span(
            f"infer {ticket.model}",
            context=self._propagate.extract(carrier),
            kind=self._trace.SpanKind.SERVER,
            start_time=int((ticket.arrived + offset) * _NS),
            attributes={
                "treadle.model": ticket.model,
                "treadle.priority": ticket.priority.label,
                "treadle.request_id": request_id,
            },
        )
        context = self._trace.set_span_in_context(span)
        started = ticket.started + offset
        for name, begin, end in (
            ("queue", ticket.arrived + offset, started),
            ("compute", started, started + answer.run_seconds),
        ):
            child = self._tracer.start_span(name, context=context, start_time=int(begin * _NS))
            child.end(end_time=int(end * _NS))
        span.end(end_time=int((now + offset) * _NS))


def find_tracer(service_name: str) -> tuple[Tracer | None, str]:
    """A tracer, if OpenTelemetry is installed and finds an exporter; otherwise why there is none.

    The usual ``OTEL_*`` variables configure it.
    """
    if os.environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None, "OTEL_TRACES_EXPORTER is none"
    if not any(os.environ.get(name) for name in _EXPORTER_VARIABLES):
        return None, f"no exporter is configured: set one of {', '.join(_EXPORTER_VARIABLES)}"
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import (
            BatchSpanProcessor,
            ConsoleSpanExporter,
        )
    except ImportError as error:
        return None, f"{error.name} is not installed: pip install 'treadle[otel]'"
    name = os.environ.get("OTEL_SERVICE_NAME", service_name)
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    console = os.environ.get("OTEL_TRACES_EXPORTER") == "console"
    exporter = ConsoleSpanExporter() if console else OTLPSpanExporter()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracer(provider), ""
