from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from samples.speech import SAMPLE_RATE, SPEECH_SECONDS
from voice_activity import FRAME, VoiceActivity


@pytest.fixture(scope="session")
def recording(inputs: Path) -> NDArray[np.float32]:
    """Samples of the committed recording; shape ``[samples]``."""
    with wave.open(str(inputs / "speech.wav"), "rb") as file:
        assert (file.getframerate(), file.getnchannels()) == (SAMPLE_RATE, 1)
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    return samples.astype(np.float32) / np.float32(32_768)


def ask(model: VoiceActivity, audio: NDArray[np.float32]) -> NDArray[Any]:
    return model({"audio": audio})["speech"]


def test_speech_is_found_where_it_was_put(
    voice_activity: VoiceActivity, recording: NDArray[np.float32]
) -> None:
    (speech,) = ask(voice_activity, recording[np.newaxis])
    begin = np.arange(len(speech)) * FRAME / SAMPLE_RATE
    end = begin + FRAME / SAMPLE_RATE
    spoken = np.any([(begin >= a) & (end <= b) for a, b in SPEECH_SECONDS], axis=0)
    # The network is sure a little after speech begins, and lets go a little after it ends.
    near = np.any([(end >= a) & (begin <= b + 0.2) for a, b in SPEECH_SECONDS], axis=0)
    assert (speech[spoken] > 0.5).mean() > 0.95
    assert (speech[~near] < 0.5).all()
    assert min(spoken.sum(), (~near).sum()) > 40


def test_a_batch_gets_the_answers_of_its_items(
    voice_activity: VoiceActivity, recording: NDArray[np.float32]
) -> None:
    batch = np.stack([recording, recording[::-1], np.zeros_like(recording), 0.1 * recording])
    singles = [ask(voice_activity, audio[np.newaxis])[0] for audio in batch]
    np.testing.assert_allclose(ask(voice_activity, batch), singles, atol=1e-5)


def test_a_request_leaves_no_trace_in_the_next(
    voice_activity: VoiceActivity, recording: NDArray[np.float32]
) -> None:
    silence = np.zeros((1, SAMPLE_RATE), dtype=np.float32)
    before = ask(voice_activity, silence)
    ask(voice_activity, recording[np.newaxis])
    np.testing.assert_array_equal(ask(voice_activity, silence), before)


@pytest.mark.parametrize(("samples", "frames"), [(1, 1), (511, 1), (512, 1), (513, 2), (1_024, 2)])
def test_a_started_frame_is_filled_up_with_silence(
    voice_activity: VoiceActivity, recording: NDArray[np.float32], samples: int, frames: int
) -> None:
    audio = recording[np.newaxis, 16_000 : 16_000 + samples]
    filled = np.pad(audio, ((0, 0), (0, frames * FRAME - samples)))
    speech = ask(voice_activity, audio)
    assert speech.shape == (1, frames)
    np.testing.assert_array_equal(speech, ask(voice_activity, filled))


def test_no_samples_are_refused(voice_activity: VoiceActivity) -> None:
    with pytest.raises(ValueError, match="audio has no samples"):
        ask(voice_activity, np.zeros((2, 0), dtype=np.float32))
