"""The load generator: wrk, run as a subprocess that reports in JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.servers.errors import BenchError

_SCRIPT = Path(__file__).with_name("request.lua")
_MARK = "RESULT "
_TIMEOUT_SECONDS = 10
_GRACE_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one run of wrk saw."""

    requests: int
    requests_per_second: float
    p50_seconds: float
    p99_seconds: float
    max_seconds: float
    errors: Mapping[str, int]
    """Failures by kind: connect, read, write, timeout, and status (400 and above)."""

    @property
    def error_count(self) -> int:
        """Failures of every kind."""
        return sum(self.errors.values())


def find() -> str:
    """Path of wrk.

    Raises:
        BenchError: If it is not installed.
    """
    path = shutil.which("wrk")
    if path is None:
        raise BenchError("wrk is not installed; on Debian or Ubuntu: apt-get install wrk")
    return path


def version() -> str:
    """The first line of ``wrk --version``, without the copyright."""
    # wrk gives status 1 after --version.
    result = subprocess.run([find(), "--version"], capture_output=True, text=True, check=False)
    return (result.stdout + result.stderr).split("[", maxsplit=1)[0].strip()


def run(
    url: str, body_file: Path, headers: Mapping[str, str], *, connections: int, seconds: int
) -> Sample:
    """Send the same request over and over, each connection waiting for its answer.

    Latencies are as wrk 4 gives them: it adds the samples that a stall kept it from sending.

    Raises:
        BenchError: If wrk failed, or completed no request.
    """
    command = [
        *[find(), "--threads", "1", "--connections", str(connections)],
        *["--duration", f"{seconds}s", "--timeout", f"{_TIMEOUT_SECONDS}s"],
        *["--script", str(_SCRIPT), url, "--", str(body_file)],
        *[f"{name}: {value}" for name, value in headers.items()],
    ]
    limit_seconds = seconds + _TIMEOUT_SECONDS + _GRACE_SECONDS
    result = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=limit_seconds
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith(_MARK)]
    if result.returncode != 0 or not lines:
        raise BenchError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    seen = json.loads(lines[-1].removeprefix(_MARK))
    if not seen["requests"]:
        raise BenchError(f"no request was answered at {url}: {seen}")
    return Sample(
        requests=seen["requests"],
        requests_per_second=seen["requests"] / (seen["duration_us"] * 1e-6),
        p50_seconds=seen["p50_us"] * 1e-6,
        p99_seconds=seen["p99_us"] * 1e-6,
        max_seconds=seen["max_us"] * 1e-6,
        errors=seen["errors"],
    )
