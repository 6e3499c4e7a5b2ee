"""What the measurement of serving plays: configurations that a node takes, and models that run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from treadle.bench.serving.plays import PLAYS, configuration
from treadle.errors import ConfigError
from treadle.node.config import load_config
from treadle.types import ModelContext

torch: Any = pytest.importorskip("torch")
from treadle.bench.serving import served  # noqa: E402 - it is made of torch

EVERY = [(play, mode) for play in PLAYS.values() for mode in play.modes]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(("play", "mode"), EVERY, ids=lambda one: getattr(one, "name", one))
def test_a_node_takes_every_configuration(
    play: Any, mode: str, device: str, tmp_path: Path
) -> None:
    file = tmp_path / "treadle.toml"
    file.write_text(configuration(play, mode, device, tiny=False))
    config = load_config(file, {})
    assert [model.name for model in config.model] == [model.name for model in play.models]
    promised = [model.p99_seconds for model in config.model]
    assert any(promised) == (
        mode == "objective" and any(model.p99_seconds for model in play.models)
    )


def test_what_is_not_played_is_refused() -> None:
    with pytest.raises(ConfigError, match="allowed: objective"):
        configuration(PLAYS["target"], "fifo", "cpu", tiny=True)


@pytest.mark.parametrize("name", ["vision", "language", "ranker", "echo"])
def test_a_model_puts_out_what_it_declares(name: str, tmp_path: Path) -> None:
    context = ModelContext(
        name=name,
        device="cpu",
        threads=1,
        max_batch=8,
        folder=tmp_path,
        parameters={"tiny": True},
    )
    model = getattr(served, name)(context).eval()
    types = {"FP32": torch.float32, "INT64": torch.int64}
    inputs = [torch.ones(3, *s.shape[1:], dtype=types[s.datatype]) for s in model.inputs]
    with torch.inference_mode():
        output = model(*inputs)
    (spec,) = model.outputs
    assert tuple(output.shape) == (3, *spec.shape[1:])
    assert output.dtype == types[spec.datatype]
    assert torch.isfinite(output).all()
