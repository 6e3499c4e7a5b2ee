"""Models in files of PyTorch, and the type that they compute in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle.serve.worker.messages import Loaded

from .hosting import FLOATS, RESULT, LocalHost, model

torch: Any = pytest.importorskip("torch")

# PyTorch would rather have them exported; files that exist are served all the same.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)


class Twice(torch.nn.Module):  # type: ignore[misc]
    """Doubles, by a weight, so that there is something to save."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor([2.0, 2.0]))

    def forward(self, x: Any) -> Any:
        return x * self.scale


def scripted(file: Path) -> dict[str, Any]:
    torch.jit.save(torch.jit.trace(Twice(), torch.zeros(2, 2)), str(file))
    return {"torchscript": str(file)}


def exported(file: Path) -> dict[str, Any]:
    rows = torch.export.Dim("rows", max=64)
    program = torch.export.export(
        Twice(), (torch.zeros(2, 2),), dynamic_shapes={"x": {0: rows}}, strict=False
    )
    torch.export.save(program, str(file))
    return {"exported": str(file)}


@pytest.mark.parametrize("dtype", ["", "float64", "bfloat16"])
@pytest.mark.parametrize("save", [scripted, exported])
def test_a_file_is_a_model(host: LocalHost, tmp_path: Path, save: Any, dtype: str) -> None:
    changes = save(tmp_path / "model.pt2")
    setup = model(None, inputs=FLOATS, outputs=RESULT, max_batch=8, dtype=dtype, **changes)
    assert host.load(setup) == Loaded({"m": (FLOATS, RESULT)})
    assert host.run(rows=3, x=X)["y"].tolist() == (2 * X).tolist()


@pytest.mark.parametrize("key", ["torchscript", "exported"])
def test_a_file_that_is_none_is_refused(host: LocalHost, tmp_path: Path, key: str) -> None:
    file = tmp_path / "model"
    file.write_bytes(b"nothing of the kind")
    setup = model(None, inputs=FLOATS, outputs=RESULT, **{key: str(file)})
    assert "is not a model that can be run" in host.refusal(setup)
    setup = model(None, inputs=FLOATS, outputs=RESULT, **{key: "missing"})
    assert "no such file" in host.refusal(setup)


@pytest.mark.parametrize("key", [{"dtype": "float16"}, {"sm_share": 0.5}], ids=str)
def test_a_type_or_a_share_of_sms_is_only_for_pytorch(host: LocalHost, key: Any) -> None:
    setup = model("worker_models:Doubles", inputs=FLOATS, outputs=RESULT, **key)
    assert "sm_share are for PyTorch modules" in host.refusal(setup)
