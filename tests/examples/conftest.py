"""The quickstart's models, loaded once; skipped where the packages they come from are absent."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from treadle import ModelContext

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
sys.path.insert(0, str(QUICKSTART))  # as the server does before it calls a factory

from file_type import FileType  # noqa: E402
from text_detector import TextDetector  # noqa: E402
from voice_activity import VoiceActivity  # noqa: E402


def context(package: str, max_batch: int) -> ModelContext:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed; see requirements/quickstart.txt")
    return ModelContext(
        name=package, device="cpu", threads=1, max_batch=max_batch, folder=QUICKSTART
    )


@pytest.fixture(scope="session")
def inputs() -> Path:
    """The folder of the committed example inputs."""
    return QUICKSTART / "inputs"


@pytest.fixture(scope="session")
def file_type() -> FileType:
    return FileType(context("magika", max_batch=8))


@pytest.fixture(scope="session")
def voice_activity() -> VoiceActivity:
    return VoiceActivity(context("silero_vad", max_batch=8))


@pytest.fixture(scope="session")
def text_detector() -> TextDetector:
    return TextDetector(context("rapidocr", max_batch=1))
