"""The routes of the system shared memory extension."""

from __future__ import annotations

from dataclasses import asdict

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from treadle.serve.access import AccessRules, check_may_share
from treadle.serve.http.answers import JSONAnswer
from treadle.serve.http.body import read_small_json
from treadle.serve.http.callers import caller_of
from treadle.serve.sharedmemory import SharedMemory


class _Register(msgspec.Struct):
    key: str
    byte_size: int
    offset: int = 0


class SharedMemoryRoutes:
    """Registering regions, for those who may use them."""

    def __init__(self, shared: SharedMemory, rules: AccessRules) -> None:
        self._shared = shared
        self._rules = rules

    def routes(self) -> list[BaseRoute]:
        base = "/v2/systemsharedmemory"
        region = base + "/region/{name}"
        return [
            *(Route(p + "/status", self._status, methods=["GET"]) for p in (base, region)),
            *(Route(p + "/unregister", self._unregister, methods=["POST"]) for p in (base, region)),
            Route(region + "/register", self._register, methods=["POST"]),
        ]

    async def _status(self, request: Request) -> Response:
        check_may_share(self._rules, caller_of(request.scope))
        found = self._shared.status(request.path_params.get("name"))
        return JSONAnswer([asdict(status) for status in found])

    async def _register(self, request: Request) -> Response:
        caller = caller_of(request.scope)
        check_may_share(self._rules, caller)
        wanted = await read_small_json(request, _Register)
        self._shared.register(
            request.path_params["name"], wanted.key, wanted.offset, wanted.byte_size, caller.uid
        )
        return Response()

    async def _unregister(self, request: Request) -> Response:
        check_may_share(self._rules, caller_of(request.scope))
        self._shared.unregister(request.path_params.get("name"))
        return Response()
