"""Spans, written from times that were taken anyway."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.tracing import Tracer, find_tracer
from treadle.types import Priority

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Recorded:
    """The three spans of one request."""

    whole: ReadableSpan
    queue: ReadableSpan
    compute: ReadableSpan


async def record(headers: dict[bytes, bytes], request_id: str = "") -> Recorded:
    """Trace a request that came at 100 s, ran from 103 to 105 s and was answered at 106 s."""
    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ticket = Ticket(
        model="m",
        batch_key=(),
        priority=Priority.BACKGROUND,
        arrived=100.0,
        served=ServedModel(ModelConfig(name="m", factory="a:b")),
        inputs=[],
        answer=asyncio.get_running_loop().create_future(),
        deadline=200.0,
        started=103.0,
    )
    answer = Answer(outputs=[], queue_seconds=3.0, run_seconds=2.0)
    Tracer(provider).record(ticket, answer, headers, request_id, 106.0)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"infer m", "queue", "compute"}
    return Recorded(spans["infer m"], spans["queue"], spans["compute"])


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def ids(span: ReadableSpan) -> tuple[str, str]:
    context: Any = span.get_span_context()
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


async def test_a_request_is_three_spans_with_their_times() -> None:
    spans = await record({})
    assert seconds(spans.whole) == pytest.approx(6.0)
    assert seconds(spans.queue) == pytest.approx(3.0)
    assert seconds(spans.compute) == pytest.approx(2.0)
    assert spans.queue.start_time == spans.whole.start_time
    assert spans.queue.end_time == spans.compute.start_time


async def test_times_are_calendar_times() -> None:
    before = time.time_ns()
    spans = await record({})
    assert spans.whole.end_time is not None
    # The answer was given now, whatever the monotonic clock counts from.
    assert before - 1_000_000 <= spans.whole.end_time <= time.time_ns() + 1_000_000


async def test_wait_and_run_lie_below_the_whole() -> None:
    spans = await record({})
    trace, whole = ids(spans.whole)
    assert spans.whole.parent is None
    assert spans.whole.kind is SpanKind.SERVER
    for child in (spans.queue, spans.compute):
        assert ids(child)[0] == trace
        assert child.parent is not None
        assert f"{child.parent.span_id:016x}" == whole


async def test_the_whole_lies_below_the_callers_span() -> None:
    spans = await record({b"traceparent": f"00-{TRACE}-{PARENT}-01".encode()})
    assert spans.whole.parent is not None
    assert ids(spans.whole)[0] == TRACE
    assert f"{spans.whole.parent.span_id:016x}" == PARENT


@pytest.mark.parametrize("parent", [b"", b"nonsense", b"\xff", b"00-0-0-00"])
async def test_a_callers_span_that_cannot_be_read_is_none(parent: bytes) -> None:
    assert (await record({b"traceparent": parent, b"\xff": b"\xff"})).whole.parent is None


async def test_the_whole_says_what_was_asked() -> None:
    spans = await record({}, request_id="r-1")
    assert dict(spans.whole.attributes or {}) == {
        "treadle.model": "m",
        "treadle.priority": "background",
        "treadle.request_id": "r-1",
    }


@pytest.fixture
def no_variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in (
        *("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        *("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"),
    ):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize("value", [None, ""])
def test_without_an_exporter_there_is_no_tracer_and_a_reason(
    no_variables: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is not None:
        no_variables.setenv("OTEL_TRACES_EXPORTER", value)
    tracer, reason = find_tracer("node")
    assert tracer is None
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in reason


def test_the_exporter_none_is_no_exporter(no_variables: pytest.MonkeyPatch) -> None:
    no_variables.setenv("OTEL_TRACES_EXPORTER", "none")
    no_variables.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    tracer, reason = find_tracer("node")
    assert tracer is None
    assert "none" in reason


def test_without_the_package_the_reason_says_how_to_get_it(
    no_variables: pytest.MonkeyPatch,
) -> None:
    no_variables.setenv("OTEL_TRACES_EXPORTER", "console")
    no_variables.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    tracer, reason = find_tracer("node")
    assert tracer is None
    assert reason.endswith("is not installed: pip install 'treadle[otel]'")


PROGRAM = """
import asyncio
from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel
from treadle.serve.ticket import Answer, Ticket
from treadle.serve.tracing import find_tracer

async def main():
    tracer, reason = find_tracer("the-node")
    assert tracer is not None, reason
    served = ServedModel(ModelConfig(name="m", factory="a:b"))
    answer = asyncio.get_running_loop().create_future()
    ticket = Ticket(model="m", batch_key=(), arrived=1.0, served=served, inputs=[], answer=answer,
                    deadline=9.0, started=2.0)
    tracer.record(ticket, Answer([], 1.0, 1.0), {}, "", 3.0)

asyncio.run(main())
"""


@pytest.mark.parametrize(("variable", "name"), [("", "the-node"), ("mine", "mine")])
def test_spans_are_printed_where_the_console_is_the_exporter(
    no_variables: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    no_variables.setenv("OTEL_TRACES_EXPORTER", "console")
    no_variables.delenv("OTEL_SERVICE_NAME", raising=False)
    if variable:
        no_variables.setenv("OTEL_SERVICE_NAME", variable)
    printed = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for span in ("infer m", "queue", "compute"):
        assert f'"name": "{span}"' in printed
    assert f'"service.name": "{name}"' in printed
