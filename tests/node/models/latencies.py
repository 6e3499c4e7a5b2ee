"""A server whose metrics page tells of quick requests, more at each look."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    requests = 0

    def do_GET(self) -> None:
        Handler.requests += 100
        count = Handler.requests
        lines = [
            "# TYPE request_seconds histogram",
            *(f'request_seconds_bucket{{le="{le}"}} {count}' for le in ("0.005", "0.01", "+Inf")),
            f"request_seconds_sum {count * 0.004}",
            f"request_seconds_count {count}",
        ]
        body = "\n".join([*lines, ""]).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None: ...


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
