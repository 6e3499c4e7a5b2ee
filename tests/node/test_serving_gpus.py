"""The GPUs that models are served on: found by number, and what puts a worker there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from treadle.devices.device import DeviceInfo, DeviceKind
from treadle.devices.mps import ClientLimits
from treadle.errors import ModelLoadError
from treadle.monitor.snapshot import DeviceView, MonitorSnapshot
from treadle.node.gpus import ServingGpus
from treadle.serve.config import ModelConfig
from treadle.serve.model import ModelState, ServedModel
from treadle.turnstile import TurnstileError
from treadle.types import Priority

CRITICAL = Priority.CRITICAL


def gpu(index: int, kind: DeviceKind = DeviceKind.NVIDIA) -> DeviceView:
    info = DeviceInfo(
        uuid=f"GPU-{index}", index=index, name="H", kind=kind, cores=132, memory_bytes=1 << 37
    )
    return DeviceView(info=info, readings={}, sources={})


class World:
    """What the monitor sees, and which GPUs are parallel."""

    def __init__(self, folder: Path, *views: DeviceView, reasons: tuple[str, ...] = ()) -> None:
        self.snapshots = [MonitorSnapshot(at=0.0, devices=views, reasons=reasons)]
        self.asked: list[tuple[str, Priority]] = []
        self.gpus = ServingGpus(self.snapshot, folder, self.parallel)

    def snapshot(self) -> MonitorSnapshot:
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    async def parallel(self, uuid: str, limits: ClientLimits) -> Mapping[str, str]:
        self.asked.append((uuid, limits.priority))
        return {"CUDA_MPS_PIPE_DIRECTORY": "/pipe"} if uuid == "GPU-1" else {}


async def test_a_worker_on_the_cpu_has_what_it_was_given(tmp_path: Path) -> None:
    world = World(tmp_path, gpu(0))
    assert await world.gpus.environment("cpu", "m", CRITICAL, {"A": "1"}) == {"A": "1"}
    assert world.asked == []


async def test_a_worker_on_a_gpu_is_gated_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = tmp_path / "gate.so"
    library.touch()
    monkeypatch.setenv("TREADLE_GATE_LIBRARY", str(library))
    world = World(tmp_path, gpu(0), gpu(1))
    looking = replace(world.snapshots[0], devices=(), looking=True)
    world.snapshots.insert(0, looking)
    found = await world.gpus.environment("cuda:1", "m", CRITICAL, {"A": "1", "LD_PRELOAD": "x.so"})
    assert found == {
        "A": "1",
        "CUDA_MPS_PIPE_DIRECTORY": "/pipe",
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "LD_PRELOAD": f"{library}:x.so",
        "TREADLE_CLASS": "critical",
        "TREADLE_NAME": "model m",
        "TREADLE_TURNSTILE": str(tmp_path),
    }
    assert world.asked == [("GPU-1", CRITICAL)]


async def test_without_a_gate_it_is_on_its_gpu_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise TurnstileError("the gate is not built")

    monkeypatch.setattr("treadle.turnstile.launch.gate_library_path", missing)
    world = World(tmp_path, gpu(0))
    assert await world.gpus.environment("cuda:0", "m", CRITICAL, {}) == {
        "CUDA_VISIBLE_DEVICES": "GPU-0"
    }


async def test_a_gpu_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no GPU cuda:7 for it: there is cuda:0, cuda:1"):
        await World(tmp_path, gpu(0), gpu(1)).gpus.environment("cuda:7", "m", CRITICAL, {})
    world = World(tmp_path, gpu(0, DeviceKind.CPU), reasons=("no NVIDIA driver",))
    with pytest.raises(ModelLoadError, match="no GPU cuda:0 for it: no NVIDIA driver"):
        await world.gpus.environment("cuda:0", "m", CRITICAL, {})


async def test_models_with_an_objective_are_steered_by_what_they_answer(tmp_path: Path) -> None:
    world = World(tmp_path, gpu(0))
    await world.gpus.environment("cuda:0", "m", CRITICAL, {})

    def model(**changes: object) -> ServedModel:
        config = ModelConfig(name="m", factory="module:callable", **changes)  # type: ignore[arg-type]
        served = ServedModel(config)
        served.state = ModelState.READY
        served.group = type("Group", (), {"alive": True})()
        return served

    models = [
        model(device="cuda", p99_seconds=0.1, priority="critical"),
        model(device="cuda", p99_seconds=0.1, priority="background"),
        model(device="cuda", priority="critical"),
        model(device="cpu", p99_seconds=0.1, priority="critical"),
        model(device="cuda:1", p99_seconds=0.1, priority="critical"),
    ]
    (steered,) = world.gpus.steered(models)
    assert (steered.name, steered.gpus, steered.p99_seconds) == ("model m", ("GPU-0",), 0.1)
    assert steered.ring is models[0].ring
