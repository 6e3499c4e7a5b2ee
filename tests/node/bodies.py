"""Request bodies for the test models."""

from __future__ import annotations

from typing import Any

import httpx

from .nodes import RunningNode


def tensor(
    data: object, *, name: str = "x", datatype: str = "INT64", shape: list[int] | None = None
) -> dict[str, Any]:
    """One input; flat ``data``, one column unless ``shape`` is given."""
    if shape is None:
        assert isinstance(data, list)
        shape = [len(data), 1]
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def body(*xs: int, **parameters: object) -> dict[str, Any]:
    """A request with the rows ``xs`` for the models that take one column of integers."""
    content: dict[str, Any] = {"inputs": [tensor(list(xs))]}
    if parameters:
        content["parameters"] = parameters
    return content


def infer(node: RunningNode, model: str, *xs: int, **parameters: object) -> httpx.Response:
    """Send such a request over TCP."""
    return node.http.post(f"/v2/models/{model}/infer", json=body(*xs, **parameters))


def result(answer: httpx.Response) -> list[Any]:
    """The data of an answer's only output."""
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    data: list[Any] = output["data"]
    return data


def error(answer: httpx.Response, status: int) -> str:
    """The text of an answer that must be this error."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    text: str = answer.json()["error"]
    assert text
    assert "Traceback" not in text
    return text
