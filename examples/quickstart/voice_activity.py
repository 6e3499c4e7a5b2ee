"""Tells where in a recording somebody speaks: Silero VAD, 16 kHz."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx_model import open_session, package_file

from treadle import ModelContext, TensorSpec

SAMPLE_RATE = 16_000
FRAME = 512
"""Samples that one probability speaks for: 32 ms."""
CONTEXT = 64
"""Samples before a frame that the network looks at again."""
STATE = 128


class VoiceActivity:
    """``audio`` FP32 [batch, samples] to ``speech`` FP32 [batch, frames].

    ``audio`` is mono, 16 kHz, in [-1, 1]. ``speech`` is the probability that somebody speaks, one
    for each frame of 512 samples; the last frame is filled up with silence.

    The network is recurrent: the frames of a recording take turns, and recordings of one length
    go side by side. Its state begins and ends with the request, so requests do not affect each
    other.
    """

    def __init__(self, context: ModelContext) -> None:
        self.inputs = [TensorSpec("audio", "FP32", (-1, -1))]
        self.outputs = [TensorSpec("speech", "FP32", (-1, -1))]
        # Of the package's files that take a batch, the fastest: a graph without branches.
        model = package_file("silero_vad", "data", "silero_vad_op18_ifless.onnx")
        # One thread, however many there are: a frame is so little work that sharing it among two
        # takes longer than doing it alone.
        self._session = open_session(model, threads=1)

    def __call__(self, inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        windows = _windows(inputs["audio"])
        batch, frames, _ = windows.shape
        rate = np.array(SAMPLE_RATE, dtype=np.int64)
        state = np.zeros((2, batch, STATE), dtype=np.float32)
        speech = np.empty((batch, frames), dtype=np.float32)
        for frame in range(frames):
            probability, state = self._session.run(
                ["output", "stateN"], {"input": windows[:, frame], "sr": rate, "state": state}
            )
            speech[:, frame] = probability[:, 0]
        return {"speech": speech}


def _windows(audio: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cut audio into frames, each with the end of the frame before it (at first, silence).

    Args:
        audio: Shape ``[batch, samples]``.

    Returns:
        A view of shape ``[batch, frames, CONTEXT + FRAME]``.

    Raises:
        ValueError: If there are no samples.
    """
    samples = audio.shape[1]
    if samples == 0:
        raise ValueError("audio has no samples; at least one is needed")
    padded = np.pad(audio, ((0, 0), (CONTEXT, -samples % FRAME)))
    return sliding_window_view(padded, CONTEXT + FRAME, axis=1)[:, ::FRAME]
