"""An MLServer runtime for the served models, written as MLServer's own guide shows."""

from __future__ import annotations

import msgspec
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import (  # type: ignore[import-not-found]
    InferenceRequest,
    InferenceResponse,
    MetadataModelResponse,
)

from treadle.bench.serving.rivals.model import ModelOptions, RunningModel, metadata_of


class Model(MLModel):  # type: ignore[misc]
    """One model; ``parameters.extra`` says which."""

    async def load(self) -> bool:
        extra = self.settings.parameters.extra
        self._options = msgspec.convert({**extra, "name": self.name}, ModelOptions)
        self._run = RunningModel(self._options)
        return True

    async def metadata(self) -> MetadataModelResponse:
        return MetadataModelResponse(**metadata_of(self._options))

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {one.name: NumpyCodec.decode_input(one) for one in payload.inputs}
        outputs = self._run(inputs)
        return InferenceResponse(
            model_name=self.name,
            outputs=[NumpyCodec.encode_output(name, array) for name, array in outputs.items()],
        )
