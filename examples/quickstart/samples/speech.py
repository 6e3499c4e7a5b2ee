"""A voice made from formulas, so that the repository needs no recording of anybody.

A source-filter synthesizer in the manner of Klatt, "Software for a cascade/parallel formant
synthesizer", J. Acoust. Soc. Am. 67 (1980): glottal pulses pass through four resonators in a row,
one for each formant, and noise passes through one resonator for the hiss of consonants. The words
are nonsense; what matters is that they rise, fall and change as speech does.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE_RATE = 16_000
DURATION_SECONDS = 4.2
SPEECH_SECONDS = ((0.8, 1.88), (2.6, 3.68))
"""Start and end of the two spoken phrases; all else is near-silence."""

Signal = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Phone:
    """A speech sound: how long, where its resonances lie, and what excites them."""

    seconds: float
    formants_hz: tuple[float, float, float]
    voice: float
    """Amplitude of the glottal pulses, 0 to 1."""
    hiss: float = 0.0
    """Amplitude of the noise, 0 to 1."""
    hiss_hz: float = 4_500.0


VOWELS = {
    "a": Phone(0.15, (750, 1_200, 2_500), 1.0),
    "e": Phone(0.13, (530, 1_850, 2_500), 1.0),
    "i": Phone(0.13, (290, 2_250, 3_000), 0.9),
    "o": Phone(0.14, (480, 900, 2_450), 1.0),
    "u": Phone(0.13, (320, 800, 2_250), 0.9),
}
CONSONANTS = {
    "m": Phone(0.07, (270, 1_000, 2_200), 0.5),
    "n": Phone(0.06, (270, 1_600, 2_500), 0.5),
    "l": Phone(0.06, (350, 1_100, 2_700), 0.6),
    "s": Phone(0.09, (320, 1_600, 2_600), 0.0, hiss=0.25, hiss_hz=5_500),
    "t": Phone(0.05, (350, 1_800, 2_600), 0.0, hiss=0.15, hiss_hz=4_000),
    "k": Phone(0.05, (350, 1_700, 2_200), 0.0, hiss=0.15, hiss_hz=2_000),
}
PHONES = VOWELS | CONSONANTS
PHRASES = ("masilota", "nekomuli")


def speech() -> NDArray[np.int16]:
    """Synthesize the two phrases at ``SPEECH_SECONDS``, over a faint noise floor.

    Returns:
        Samples of shape ``[DURATION_SECONDS * SAMPLE_RATE]``, the same on every call.
    """
    noise = random.Random(1980)  # its sequence is promised never to change, unlike NumPy's
    samples = 2e-4 * _white(noise, round(DURATION_SECONDS * SAMPLE_RATE))
    for phrase, (start, end) in zip(PHRASES, SPEECH_SECONDS, strict=True):
        span = slice(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        samples[span] += 0.5 * _speak(phrase, end - start, noise)
    return np.round(samples * 32_767).astype(np.int16)


def _speak(phrase: str, seconds: float, noise: random.Random) -> Signal:
    """Say one phrase, stretched to ``seconds``; the loudest sample is 1."""
    phones = [PHONES[letter] for letter in phrase]
    ends: Signal = np.cumsum([phone.seconds for phone in phones])
    time: Signal = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE * (ends[-1] / seconds)
    middles = ends - [phone.seconds / 2 for phone in phones]

    def track(values: list[float]) -> Signal:
        """Glide from phone to phone, as the mouth does."""
        return np.interp(time, middles, values)

    fade = np.minimum(1.0, np.minimum(time, time[::-1]) / 0.04)
    pulses = _glottal_pulses(len(time)) * track([phone.voice for phone in phones])
    for index in range(3):
        pulses = _resonate(pulses, track([p.formants_hz[index] for p in phones]), 60 + 40 * index)
    pulses = _resonate(pulses, np.full(len(time), 3_500.0), 250)

    hiss = _white(noise, len(time)) * track([phone.hiss for phone in phones])
    hiss = _resonate(hiss, track([phone.hiss_hz for phone in phones]), 1_000)

    voice = (pulses / np.abs(pulses).max() + 0.3 * hiss) * fade
    return np.asarray(voice / np.abs(voice).max())


def _glottal_pulses(count: int) -> Signal:
    """Puffs of air whose pitch falls over the phrase, with a little vibrato."""
    time = np.arange(count) / SAMPLE_RATE
    pitch_hz = 135 - 30 * time / time[-1] + 4 * np.sin(2 * np.pi * 5 * time)
    phase = np.cumsum(pitch_hz / SAMPLE_RATE) % 1.0
    opening = np.where(phase < 0.6, phase**2 * (0.6 - phase), 0.0)
    return np.diff(opening, prepend=0.0)


def _resonate(signal: Signal, centre_hz: Signal, bandwidth_hz: float) -> Signal:
    """Pass ``signal`` through a two-pole resonator whose centre moves (Klatt 1980, eq. 1-2)."""
    radius = math.exp(-math.pi * bandwidth_hz / SAMPLE_RATE)
    c = -radius * radius
    output = np.empty_like(signal)
    previous = before = 0.0
    b_track = 2 * radius * np.cos(2 * np.pi * centre_hz / SAMPLE_RATE)
    for index, (x, b) in enumerate(zip(signal.tolist(), b_track.tolist(), strict=True)):
        previous, before = (1 - b - c) * x + b * previous + c * before, previous
        output[index] = previous
    return output


def _white(noise: random.Random, count: int) -> Signal:
    return np.array([noise.uniform(-1, 1) for _ in range(count)])
