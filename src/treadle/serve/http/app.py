"""The routes of the Open Inference Protocol and its extensions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from treadle.errors import InvalidRequestError, RequestError
from treadle.serve.access import AccessRules, check_may_control, has_token, may_share
from treadle.serve.dataplane import DataPlane
from treadle.serve.http.answers import JSONAnswer, error_answer
from treadle.serve.http.body import read_small_json
from treadle.serve.http.callers import caller_of, is_local
from treadle.serve.http.infer import InferEndpoint
from treadle.serve.http.sharedmemory import SharedMemoryRoutes
from treadle.serve.http.stream import StreamEndpoint
from treadle.serve.sharedmemory import SharedMemory


class _IndexRequest(msgspec.Struct):
    ready: bool = False


class _RepositoryRequest(msgspec.Struct):
    parameters: dict[str, bool | int | float | str] = {}


class ProtocolRoutes:
    """Everything of the protocol but inference itself."""

    def __init__(self, plane: DataPlane, rules: AccessRules) -> None:
        self._plane = plane
        self._rules = rules

    def routes(self) -> list[BaseRoute]:
        model = "/v2/models/{name}"
        version = model + "/versions/{version}"
        return [
            Route("/v2", self._server, methods=["GET"]),
            Route("/v2/health/live", self._live, methods=["GET"]),
            Route("/v2/health/ready", self._ready, methods=["GET"]),
            Route("/v2/models/stats", self._all_statistics, methods=["GET"]),
            # Inference never comes here, except with the wrong method.
            *(
                Route(p + kind, self._model, methods=["POST"])
                for p in (model, version)
                for kind in ("/infer", "/infer_stream")
            ),
            *(Route(p, self._model, methods=["GET"]) for p in (model, version)),
            *(Route(p + "/ready", self._model_ready, methods=["GET"]) for p in (model, version)),
            *(Route(p + "/config", self._model_config, methods=["GET"]) for p in (model, version)),
            *(Route(p + "/stats", self._statistics, methods=["GET"]) for p in (model, version)),
            Route("/v2/repository/index", self._index, methods=["POST"]),
            Route("/v2/repository/models/{name}/load", self._load, methods=["POST"]),
            Route("/v2/repository/models/{name}/unload", self._unload, methods=["POST"]),
        ]

    async def _server(self, request: Request) -> Response:
        shared_memory = may_share(self._rules, caller_of(request.scope))
        return JSONAnswer(self._plane.server_metadata(shared_memory=shared_memory))

    async def _live(self, request: Request) -> Response:
        return Response()

    async def _ready(self, request: Request) -> Response:
        reason = self._plane.not_ready_reason
        if reason and request.scope.get("has_token") is False:
            reason = "not ready"  # why is nothing for those who only may check health
        return JSONAnswer({"error": reason}, 400) if reason else Response()

    async def _model(self, request: Request) -> Response:
        return JSONAnswer(self._plane.model_metadata(**request.path_params))

    async def _model_ready(self, request: Request) -> Response:
        model = self._plane.repository.get(**request.path_params)
        if model.ready and not self._plane.draining:
            return Response()
        reason = model.reason or model.state.lower()
        return JSONAnswer({"error": f"model '{model.name}' is not ready: {reason}"}, 400)

    async def _model_config(self, request: Request) -> Response:
        return JSONAnswer(self._plane.model_config(**request.path_params))

    async def _statistics(self, request: Request) -> Response:
        return JSONAnswer(self._plane.statistics(**request.path_params))

    async def _all_statistics(self, request: Request) -> Response:
        return JSONAnswer(self._plane.statistics())

    async def _index(self, request: Request) -> Response:
        wanted = await read_small_json(request, _IndexRequest)
        return JSONAnswer(self._plane.index(ready_only=wanted.ready))

    async def _load(self, request: Request) -> Response:
        check_may_control(self._rules, caller_of(request.scope))
        body = await read_small_json(request, _RepositoryRequest)
        if body.parameters:
            raise InvalidRequestError(
                f"load parameters {', '.join(body.parameters)} are not supported: a model is "
                "loaded as the node's configuration file says"
            )
        await self._plane.repository.load(request.path_params["name"])
        return Response()

    async def _unload(self, request: Request) -> Response:
        check_may_control(self._rules, caller_of(request.scope))
        body = await read_small_json(request, _RepositoryRequest)
        # Models here have no dependents, so either value of this one means the same.
        if unknown := body.parameters.keys() - {"unload_dependents"}:
            raise InvalidRequestError(
                f"unknown parameter {', '.join(unknown)}; allowed: unload_dependents"
            )
        await self._plane.repository.unload(request.path_params["name"])
        return Response()


class TokenGate:
    """Lets requests over TCP in only with the token, if there is one.

    Health checks pass without: they tell nothing, and those who send them have no secrets.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_local(scope):
            given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
            scope["has_token"] = has_token(given, self._token)
            if not (scope["has_token"] or scope["path"].startswith("/v2/health/")):
                answer = JSONAnswer(
                    {"error": "this server needs a token: send Authorization: Bearer TOKEN"},
                    401,
                    {"www-authenticate": "Bearer"},
                )
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class _InferFirst:
    """Sends inference straight to its endpoint, past all that other requests go through.

    Routing and its middleware cost about as much as the rest of a small request's way.
    """

    def __init__(self, infer: InferEndpoint, stream: StreamEndpoint, app: ASGIApp) -> None:
        self._infer = infer
        self._stream = stream
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            match scope["path"].split("/"):
                case ["", "v2", "models", name, "infer"] if name:
                    await self._infer.answer(name, "", scope, receive, send)
                    return
                case ["", "v2", "models", name, "versions", version, "infer"] if name:
                    await self._infer.answer(name, version, scope, receive, send)
                    return
                case ["", "v2", "models", name, "infer_stream"] if name:
                    await self._stream.answer(name, "", scope, receive, send)
                    return
                case ["", "v2", "models", name, "versions", version, "infer_stream"] if name:
                    await self._stream.answer(name, version, scope, receive, send)
                    return
        await self._app(scope, receive, send)


def build_app(
    plane: DataPlane,
    infer: InferEndpoint,
    stream: StreamEndpoint,
    shared: SharedMemory,
    rules: AccessRules,
    more_routes: Sequence[BaseRoute] = (),
) -> ASGIApp:
    """Put the application together.

    Args:
        plane: What answers questions about the server and its models.
        infer: What answers inference requests.
        stream: What answers them in parts.
        shared: The regions of shared memory that clients register.
        rules: Who may do what.
        more_routes: Of the node itself.
    """
    protocol = ProtocolRoutes(plane, rules).routes()
    regions = SharedMemoryRoutes(shared, rules).routes()
    app: ASGIApp = Starlette(
        routes=[*protocol, *regions, *more_routes],
        exception_handlers={
            RequestError: _on_request_error,
            HTTPException: _on_http_error,
            Exception: _on_bug,
        },
    )
    app = _InferFirst(infer, stream, app)
    return TokenGate(app, rules.token) if rules.token else app


async def _on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_answer(error)


async def _on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = f"{request.method} {request.url.path}: {error.detail}"
    return JSONAnswer({"error": text}, error.status_code, error.headers)


async def _on_bug(request: Request, error: Exception) -> Response:
    return JSONAnswer({"error": f"internal error: {type(error).__name__}"}, 500)
