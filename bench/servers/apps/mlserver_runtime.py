"""Custom MLServer runtimes, written as MLServer's own guide shows."""

from __future__ import annotations

import onnxruntime
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import (  # type: ignore[import-not-found]
    InferenceRequest,
    InferenceResponse,
)


class Identity(MLModel):  # type: ignore[misc]
    """Gives back the tensor that it was given."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        tensor = NumpyCodec.decode_input(payload.inputs[0])
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output("output", tensor)],
        )


class FileType(MLModel):  # type: ignore[misc]
    """Runs the ONNX file named by ``parameters.uri`` with one thread."""

    async def load(self) -> bool:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            self.settings.parameters.uri, options, providers=["CPUExecutionProvider"]
        )
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        batch = NumpyCodec.decode_input(payload.inputs[0])
        (label,) = self._session.run(["target_label"], {"bytes": batch})
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output("target_label", label)],
        )
