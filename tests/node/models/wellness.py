"""A server that is as well as a file says: ``well``, ``ill`` or not there at all."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if Path("health").read_text() == "well" else 503)
        self.end_headers()

    def log_message(self, *arguments: object) -> None: ...


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
