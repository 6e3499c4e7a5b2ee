"""A node in a process of its own, and its jobs over its local socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from tests.node.nodes import DEADLINE_SECONDS, RunningNode, wait_until

from .supervisor.harness import PATH

JOBS = "/treadle/v1/jobs"


class JobNode:
    """A running node, asked about jobs."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        self.home = node.home

    def post(self, path: str = "", content: Any = None) -> httpx.Response:
        return self.node.local.post(JOBS + path, json=content)

    def get(self, path: str = "") -> httpx.Response:
        return self.node.local.get(JOBS + path)

    def submit(self, script: str, array: list[int] | None = None, **fields: Any) -> list[int]:
        """Queue ``sh -c``."""
        answer = self.post("", body(script, array, **fields))
        assert answer.status_code == 201, answer.text
        ids: list[int] = answer.json()["ids"]
        return ids

    def one(self, script: str, **fields: Any) -> int:
        (number,) = self.submit(script, **fields)
        return number

    def job(self, number: int, query: str = "") -> dict[str, Any]:
        answer = self.get(f"/{number}{query}")
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    def over(self, number: int) -> dict[str, Any]:
        """Wait until a job is over."""
        job = self.job(number, f"?wait={DEADLINE_SECONDS}")
        assert job["state"] in ("finished", "failed", "cancelled", "lost"), job
        return job

    def comes_to(self, number: int, state: str) -> dict[str, Any]:
        wait_until(lambda: self.job(number)["state"] == state, f"job {number} is {state}")
        return self.job(number)

    def log(self, number: int, query: str = "") -> bytes:
        answer = self.get(f"/{number}/log{query}")
        assert answer.status_code == 200, answer.text
        return answer.content

    @property
    def folder(self) -> Path:
        return self.home.folder / "state" / "jobs"


def body(script: str, array: list[int] | None = None, **fields: Any) -> dict[str, Any]:
    job = {"command": ["sh", "-c", script], "env": {"PATH": PATH}, "share": 0, **fields}
    return {"job": job, "array": array or []}


def ready(running: RunningNode) -> JobNode:
    """Wait until the queue is open."""
    node = JobNode(running)
    wait_until(lambda: node.get().status_code == 200, "the queue is open")
    return node
