"""What bounds a model's batches."""

from __future__ import annotations

from treadle.serve.config import ModelConfig
from treadle.serve.model import ServedModel


def test_batches_are_smaller_once_memory_ran_out_and_grow_again_step_by_step() -> None:
    model = ServedModel(ModelConfig(name="m", factory="module:callable", max_batch=32))
    assert model.most_rows == 32
    model.memory_ran_out(8, 100.0)
    model.try_more(110.0)
    assert model.most_rows == 8
    model.try_more(130.0)
    assert model.most_rows == 16
    model.try_more(140.0)
    assert model.most_rows == 16
    model.memory_ran_out(4, 150.0)
    for now in (180.0, 210.0, 240.0):
        model.try_more(now)
    assert model.most_rows == 32
    assert model.bounds == {}
