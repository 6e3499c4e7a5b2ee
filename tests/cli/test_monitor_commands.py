"""``treadle top``, ``record`` and ``replay`` as they are typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.cli.exits import Exit

ROOT = Path(__file__).parent.parent.parent


def treadle(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command that sees two fake devices, and no node."""
    own = {
        "TREADLE_DEVICES": "tests.monitor.fakes:two",
        "TREADLE_RUNTIME_DIR": str(folder),
        "TREADLE_TURNSTILE_DIR": str(folder / "pages"),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "treadle.cli.main", *arguments],
        env=os.environ | own | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_frame_of_top(tmp_path: Path) -> None:
    result = treadle(tmp_path, "top", "--once")
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    assert "100 W" in result.stdout
    assert "150 W" in result.stdout
    assert "no other devices: nvidia: there is no driver" in result.stdout
    assert "\x1b" not in result.stdout


def test_devices_that_cannot_be_read_are_an_error_in_one_line(tmp_path: Path) -> None:
    result = treadle(tmp_path, "top", "--once", TREADLE_DEVICES="tests.monitor.fakes:none")
    assert result.returncode == Exit.FAILED
    assert result.stderr == ("treadle: the devices cannot be read: DeviceError: nothing is here\n")


def test_a_recording_is_shown_again(tmp_path: Path) -> None:
    file = str(tmp_path / "r")
    result = treadle(tmp_path, "record", file, "--seconds", "0.5", "--devices", "1")
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    result = treadle(tmp_path, "replay", file, "--summary")
    assert "device    FAKE-1  Fake 8GB\nmissing   nothing\n" in result.stdout
    result = treadle(tmp_path, "replay", file, "--once")
    assert (result.returncode, result.stderr) == (Exit.OK, "")
    assert "150 W" in result.stdout


@pytest.mark.parametrize("command", ["record", "replay"])
def test_a_file_that_is_no_recording_is_left_alone(tmp_path: Path, command: str) -> None:
    (tmp_path / "letter").write_text("Dear reader, ...")
    result = treadle(tmp_path, command, str(tmp_path / "letter"))
    assert result.returncode == Exit.FAILED
    assert result.stderr == f"treadle: {tmp_path / 'letter'} is not a recording\n"
    assert (tmp_path / "letter").read_text() == "Dear reader, ..."
