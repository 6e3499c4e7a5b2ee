"""Models served on a real GPU by a whole node."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gpu.conftest import PROGRAMS, Floor, Program, eventually

from treadle.client.node import NodeClient
from treadle.errors import TreadleError

pytestmark = pytest.mark.gpu

NODE_NEEDS = ("aiohttp", "msgspec", "prometheus_client", "pynvml", "starlette", "uvicorn")
TENSORS = """
inputs = [{ name = "x", datatype = "FP32", shape = [-1, 64] }]
outputs = [{ name = "y", datatype = "FP32", shape = [-1, 64] }]
max_batch = 32
device = "cuda"
worker = "both"
"""
CONFIG = f"""
[http]
port = 0
[[model]]
name = "urgent"
factory = "served:doubling"
priority = "critical"
p99_seconds = 0.1
{TENSORS}
[[model]]
name = "patient"
factory = "served:doubling"
priority = "background"
dtype = "float16"
parameters = {{ size = 2048 }}
{TENSORS}
[[model]]
name = "greedy"
factory = "served:greedy"
{TENSORS.replace("both", "greedy")}
[[model]]
name = "spoiling"
factory = "served:spoiling"
{TENSORS.replace("both", "spoiling")}
[[model]]
name = "nowhere"
factory = "served:doubling"
{TENSORS.replace('"both"', '"nowhere"').replace('"cuda"', '"cuda:99"')}
"""


class Served:
    """A node of this test's own."""

    def __init__(self, folder: Path, program: Program) -> None:
        self.socket, self.program = folder / "run" / "node.sock", program

    def get(self, path: str) -> Any:
        async def ask() -> Any:
            async with NodeClient(self.socket) as client:
                return await client.get(path)

        return asyncio.run(ask())

    def models(self) -> dict[str, Any]:
        return {model["name"]: model for model in self.get("/treadle/v1/status")["models"]}

    def infer(self, model: str, rows: list[float]) -> list[float]:
        """The first number of each row of the answer."""
        return asyncio.run(self._infer_all(model, [rows]))[0]

    def infer_all(self, model: str, requests: list[list[float]]) -> list[list[float]]:
        """Several at once."""
        return asyncio.run(self._infer_all(model, requests))

    async def _infer_all(self, model: str, requests: list[list[float]]) -> list[list[float]]:
        async with NodeClient(self.socket) as client:

            async def one(rows: list[float]) -> list[float]:
                data = [value for value in rows for _ in range(64)]
                tensor = {"name": "x", "datatype": "FP32", "shape": [len(rows), 64], "data": data}
                answer = await client.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})
                found: list[float] = answer["outputs"][0]["data"][::64]
                return found

            return await asyncio.gather(*(one(rows) for rows in requests))


@pytest.fixture(scope="module")
def served(module_floor: Floor) -> Iterator[Served]:
    if missing := [name for name in NODE_NEEDS if not importlib.util.find_spec(name)]:
        pytest.skip(f"a node needs {', '.join(missing)}")
    folder = module_floor.folder / "node"
    folder.mkdir()
    (folder / "treadle.toml").write_text(CONFIG)
    (folder / "served.py").write_text((PROGRAMS / "served.py").read_text())
    up = module_floor.start(
        [sys.executable, "-m", "treadle", "up", str(folder / "treadle.toml")],
        TREADLE_RUNTIME_DIR=f"{folder}/run",
        TREADLE_STATE_DIR=f"{folder}/state",
    )
    served = Served(folder, up)

    def loaded() -> bool:
        try:
            models = served.models()
        except (OSError, TreadleError):
            return False
        return all(model["state"] != "LOADING" for model in models.values()) and any(
            model["state"] == "READY" for model in models.values()
        )

    eventually(loaded, "the models are loaded")
    yield served
    up.clear_away()


def test_a_model_answers_what_it_answers_on_the_cpu(served: Served) -> None:
    assert served.infer("urgent", [1.0, 2.5, -3.0]) == [2.0, 5.0, -6.0]


def test_models_of_two_classes_share_a_worker_and_none_is_mixed(served: Served) -> None:
    models = served.models()
    assert models["urgent"]["pids"] == models["patient"]["pids"]
    requests = [[float(number)] * (1 + number % 4) for number in range(200)]
    for name in ("urgent", "patient"):
        found = served.infer_all(name, requests)
        assert found == [[2 * value for value in rows] for rows in requests]
    assert served.models()["urgent"]["standing"]["within"] > 0.5


def test_a_batch_for_which_memory_runs_out_is_divided(served: Served) -> None:
    assert served.infer("greedy", [float(n) for n in range(16)]) == [2.0 * n for n in range(16)]
    assert served.models()["greedy"]["most_rows"] < 32


def test_a_worker_whose_context_is_spoilt_is_replaced_and_others_go_on(served: Served) -> None:
    before = served.models()
    with pytest.raises(TreadleError):
        served.infer("spoiling", [-1.0])
    assert served.infer("urgent", [4.0]) == [8.0]
    eventually(
        lambda: served.models()["spoiling"]["pids"] not in ([], before["spoiling"]["pids"]),
        "another worker is there",
    )
    assert served.infer("spoiling", [3.0]) == [6.0]
    assert served.models()["urgent"]["pids"] == before["urgent"]["pids"]


def test_a_gpu_that_is_not_there_is_a_reason(served: Served) -> None:
    nowhere = served.models()["nowhere"]
    assert nowhere["state"] == "UNAVAILABLE"
    assert "no GPU cuda:99" in nowhere["reason"]
