"""Writes the example inputs, which are committed: run this only after changing ``samples``.

Python makes them from nothing but formulas, a font inside Pillow and text in ``samples``, so they
may be copied freely. Needs ``pip install treadle[images]`` for Pillow.
"""

from __future__ import annotations

import sys
import wave
from pathlib import Path

from samples import pages, sources, speech


def write_inputs(folder: Path) -> None:
    """Write every example input into ``folder``, which is created if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in sources.SOURCES.items():
        (folder / name).write_bytes(source.text.encode())
    pages.receipt().image.save(folder / "receipt.png", optimize=True)
    pages.page().image.save(folder / "page.png", optimize=True)
    with wave.open(str(folder / "speech.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(speech.SAMPLE_RATE)
        file.writeframes(speech.speech().astype("<i2").tobytes())


if __name__ == "__main__":
    write_inputs(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "inputs")
