"""``/treadle/v1/jobs``: submit, list, look, wait, read the output, cancel, pause, resume."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from treadle.errors import ForbiddenError, InvalidRequestError
from treadle.node.callers import caller_of
from treadle.node.jobs import NodeJobs
from treadle.programs.jobs import Jobs
from treadle.programs.logs import LogReader
from treadle.programs.spec import decode_submission
from treadle.progress import read_one
from treadle.serve.http.answers import JSONAnswer
from treadle.serve.http.body import read_body
from treadle.turnstile import default_folder
from treadle.types import Mode, TaskState

_MOST_BODY_BYTES = 16 << 20
_MOST_LISTED, _USUALLY_LISTED = 10_000, 100
_MOST_WAIT_SECONDS = 60.0
_TOLD_AT_ONCE = 100
"""Jobs between two moments for other requests: a long list is not in their way."""
_FOLLOW_SECONDS = 0.2
_MOST_DIGITS = 15


class ModeChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request to give a GPU another mode."""

    mode: Mode
    restart: bool = False
    """Whether its jobs are started again for that; else it changes once they are over."""


class JobsApi:
    """For those whom the kernel names on the local socket, and for who holds the token."""

    def __init__(self, jobs: NodeJobs) -> None:
        self._node = jobs

    def routes(self) -> list[BaseRoute]:
        one = "/treadle/v1/jobs/{number:int}"
        return [
            Route("/treadle/v1/jobs", self._submit, methods=["POST"]),
            Route("/treadle/v1/jobs", self._list, methods=["GET"]),
            Route(one, self._get, methods=["GET"]),
            Route(one + "/log", self._log, methods=["GET"]),
            Route(one + "/cancel", self._cancel, methods=["POST"]),
            Route(one + "/pause", self._pause, methods=["POST"]),
            Route(one + "/resume", self._resume, methods=["POST"]),
            Route("/treadle/v1/objectives", self._wish, methods=["POST"]),
            Route("/treadle/v1/modes", self._modes, methods=["GET"]),
            Route("/treadle/v1/modes/{uuid}", self._change_mode, methods=["POST"]),
        ]

    async def _submit(self, request: Request) -> Response:
        caller = caller_of(request)
        submission = decode_submission(await read_body(request.receive, _MOST_BODY_BYTES))
        jobs = await self._node.jobs.submit(submission, caller)
        return JSONAnswer({"ids": [job.id for job in jobs]}, 201)

    async def _list(self, request: Request) -> Response:
        caller, query = caller_of(request), request.query_params
        states = [state for state in query.get("states", "").split(",") if state]
        if unknown := set(states) - set(TaskState):
            raise InvalidRequestError(f"states: {unknown.pop()!r}; allowed: {', '.join(TaskState)}")
        jobs = self._node.jobs
        found = await jobs.newest(
            states=states,
            before=_number(query.get("before")),
            uid=caller.uid if query.get("mine") else None,
            limit=min(_MOST_LISTED, _number(query.get("limit")) or _USUALLY_LISTED),
        )
        told = []
        for place, job in enumerate(found, start=1):
            told.append(jobs.told(job))
            if not place % _TOLD_AT_ONCE:
                await asyncio.sleep(0)
        return JSONAnswer({"jobs": told, "counts": jobs.counts()})

    async def _get(self, request: Request) -> Response:
        """One job; ``?wait=`` so many seconds until it is over."""
        caller_of(request)
        jobs, number = self._node.jobs, request.path_params["number"]
        seconds = _seconds(request.query_params.get("wait"))
        job = await (jobs.wait(number, seconds) if seconds else jobs.get(number))
        told = jobs.told(job)
        if job.pid is not None and not job.state.over:
            progress = await asyncio.to_thread(read_one, default_folder(), job.pid)
            told["progress"] = progress and {
                "samples": progress.samples,
                "loss": progress.loss,
                "seconds_ago": time.monotonic() - progress.last_at,
            }
        if request.query_params.get("history"):
            told["history"] = [
                {"at": at, "state": state, "reason": reason}
                for at, state, reason in await jobs.history(number)
            ]
        return JSONAnswer(told)

    async def _log(self, request: Request) -> Response:
        """The output; ``?tail=`` the last lines, ``?follow=1`` until the job is over."""
        caller, jobs = caller_of(request), self._node.jobs
        job = await jobs.get(request.path_params["number"])
        if not caller.owner and job.uid != caller.uid:
            raise ForbiddenError(f"job {job.id} is of user {job.user or job.uid}")
        tail = _number(request.query_params.get("tail"))
        follow = bool(request.query_params.get("follow"))
        return StreamingResponse(
            _output(jobs, job.id, max(1, job.attempt), tail, follow=follow),
            media_type="application/octet-stream",
        )

    async def _cancel(self, request: Request) -> Response:
        jobs = self._node.jobs
        job = await jobs.cancel(request.path_params["number"], caller_of(request))
        return JSONAnswer(jobs.told(job))

    async def _pause(self, request: Request) -> Response:
        return await self._hold(request, on=True)

    async def _resume(self, request: Request) -> Response:
        return await self._hold(request, on=False)

    async def _wish(self, request: Request) -> Response:
        """Steer by the program that asks: it is known by its connection."""
        caller = caller_of(request)
        if caller.pid is None:
            raise ForbiddenError("a program asks for itself, over the node's local socket")
        body = await read_body(request.receive, _MOST_BODY_BYTES)
        self._node.objectives.wish(caller.pid, body)
        return JSONAnswer({"pid": caller.pid}, 201)

    async def _modes(self, request: Request) -> Response:
        caller_of(request)
        return JSONAnswer({"gpus": self._node.modes.told()})

    async def _change_mode(self, request: Request) -> Response:
        if not caller_of(request).owner:
            raise ForbiddenError("the mode of a GPU is for the node's owner to change")
        body = await read_body(request.receive, _MOST_BODY_BYTES)
        try:
            wanted = msgspec.json.decode(body, type=ModeChange)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"not a change of mode: {error}") from None
        modes = self._node.modes
        modes.change(request.path_params["uuid"], wanted.mode, restart=wanted.restart)
        return JSONAnswer({"gpus": modes.told()}, 202)

    async def _hold(self, request: Request, *, on: bool) -> Response:
        jobs = self._node.jobs
        job = await jobs.hold(request.path_params["number"], caller_of(request), on=on)
        return JSONAnswer(jobs.told(job))


async def _output(
    jobs: Jobs, number: int, attempt: int, tail: int | None, *, follow: bool
) -> AsyncIterator[bytes]:
    """The output of an attempt as it comes, and of those that follow it."""
    while True:
        with contextlib.closing(LogReader(jobs.log_files(number, attempt), tail)) as reader:
            while True:
                job = await jobs.get(number)
                over, following = job.state.over, job.attempt > attempt
                while data := await asyncio.to_thread(reader.read):
                    yield data
                if over or following or not follow:
                    break
                await jobs.wait(number, _FOLLOW_SECONDS)
        if not (follow and following):
            return
        attempt, tail = attempt + 1, None


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InvalidRequestError(f"{text!r}; allowed: a whole number")
    return int(text)


def _seconds(text: str | None) -> float:
    try:
        return min(_MOST_WAIT_SECONDS, max(0.0, float(text or 0)))
    except ValueError:
        raise InvalidRequestError(f"wait: {text!r}; allowed: seconds") from None
