"""A model in the words of Triton's model configuration extension."""

from __future__ import annotations

from typing import Any

from treadle.serve.model import ServedModel
from treadle.types import TensorSpec


def platform_of(model: ServedModel) -> str:
    """What runs the model."""
    return "onnxruntime_onnx" if model.config.onnx else "python"


def model_config(model: ServedModel) -> dict[str, Any]:
    """The ``$model_config`` object: what is true of the model here, and nothing more."""
    config = model.config
    described: dict[str, Any] = {
        "name": model.name,
        "platform": platform_of(model),
        # Triton's word for a model without a batch dimension is 0.
        "max_batch_size": config.max_batch if model.batched else 0,
        "input": [_tensor(model, spec) for spec in model.inputs],
        "output": [_tensor(model, spec) for spec in model.outputs],
        "instance_group": [
            {"name": config.worker_name, "kind": "KIND_CPU", "count": config.replicas}
        ],
        "model_transaction_policy": {"decoupled": model.streaming},
    }
    if model.batched:
        described["dynamic_batching"] = {
            "max_queue_delay_microseconds": round(config.max_delay_seconds * 1e6)
        }
    return described


def _tensor(model: ServedModel, spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    dims = spec.shape[1:] if model.batched else spec.shape
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": dims}
