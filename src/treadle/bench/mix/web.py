"""The HTTP side of the model server: ``/infer``, ``/health``, ``/metrics``, and ``/start``."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from treadle.types import NEAR_FRACTION

_FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, NEAR_FRACTION, 1, 1.5, 2, 4, 8, 16, 64)
_MOST_BODY_BYTES = 1 << 20
METRIC = "request_seconds"


def bounds(objective_seconds: float) -> list[float]:
    """Bounds of the histogram: those that are asked for are told exactly."""
    return [factor * objective_seconds for factor in _FACTORS]


class Metrics:
    """The one histogram, on a page of its own that is quick to write."""

    def __init__(self, objective_seconds: float) -> None:
        self._registry = CollectorRegistry()
        self._histogram = Histogram(
            METRIC,
            "From when a request was due to its answer.",
            buckets=bounds(objective_seconds),
            registry=self._registry,
        )

    def observe(self, seconds: float) -> None:
        self._histogram.observe(seconds)

    def page(self) -> bytes:
        return generate_latest(self._registry)


class Web:
    """Answers in threads of its own until the process ends."""

    def __init__(self, port: int, infer: Callable[[], None], metrics: Metrics) -> None:
        """Listen, and answer from now on.

        Args:
            port: On this machine only; 0 picks a free one.
            infer: Runs one request.
            metrics: Told how long each took.
        """
        self.started = threading.Event()
        """Set once somebody has asked for the load."""
        self.zero = 0.0
        """Monotonic time at which that is to begin."""
        web = self

        class Handler(BaseHTTPRequestHandler):
            """One connection."""

            def do_GET(self) -> None:
                if self.path == "/health":
                    self._answer(HTTPStatus.OK, b"well\n", "text/plain")
                elif self.path == "/metrics":
                    self._answer(HTTPStatus.OK, metrics.page(), CONTENT_TYPE_LATEST)
                else:
                    self.send_error(HTTPStatus.NOT_FOUND)

            def do_POST(self) -> None:
                size = min(int(self.headers.get("Content-Length") or 0), _MOST_BODY_BYTES)
                body = self.rfile.read(size)
                if self.path == "/infer":
                    began = time.monotonic()
                    infer()
                    taken = time.monotonic() - began
                    metrics.observe(taken)
                    self._say({"seconds": taken})
                elif self.path == "/start":
                    try:
                        web.zero = float(json.loads(body)["zero"])
                    except (ValueError, KeyError, TypeError):
                        self.send_error(HTTPStatus.BAD_REQUEST, 'allowed: {"zero": SECONDS}')
                        return
                    web.started.set()
                    self._say({"zero": web.zero})
                else:
                    self.send_error(HTTPStatus.NOT_FOUND)

            def _say(self, content: object) -> None:
                self._answer(HTTPStatus.OK, json.dumps(content).encode(), "application/json")

            def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, name="web", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
