"""``treadle top``, ``record`` and ``replay`` as they are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from tests.monitor.waiting import DEADLINE_SECONDS

from treadle.cli.exits import Exit

ROOT = Path(__file__).parent.parent.parent


def variables(folder: Path) -> dict[str, str]:
    """With these a command sees two fake devices, and no node."""
    return {
        "TREADLE_DEVICES": "tests.monitor.fakes:two",
        "TREADLE_RUNTIME_DIR": str(folder),
        "TREADLE_TURNSTILE_DIR": str(folder / "pages"),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "COLUMNS": "80",
        "NO_COLOR": "1",
    }


def treadle(folder: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "treadle.cli.main", *arguments],
        env=os.environ | variables(folder) | more,
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


def test_keys_change_the_view_and_q_ends_it(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-m", "treadle.cli.main", "top"],
        env=os.environ | variables(tmp_path) | {"TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as top:
        shown = Screen(ours)
        shown.wait_for("sort: index")
        os.write(ours, b"s")
        shown.wait_for("sort: activity")
        os.write(ours, b"f")
        shown.wait_for("tasks: critical")
        os.write(ours, b"q")
        shown.drain_until(top)
        assert top.returncode == Exit.OK
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


class Screen:
    """What was written to a terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._text = descriptor, ""

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._descriptor], [], [], seconds)
        if ready:
            self._text += os.read(self._descriptor, 1 << 16).decode(errors="replace")

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while words not in self._text:
            assert time.monotonic() < deadline, self._text[-4000:]
            self._read(0.1)

    def drain_until(self, program: subprocess.Popen[bytes]) -> None:
        """Read on until a program has ended: a terminal that nobody reads holds it up."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while program.poll() is None:
            assert time.monotonic() < deadline, self._text[-4000:]
            self._read(0.05)


def test_where_nobody_watches_a_recording_is_summed_up(tmp_path: Path) -> None:
    file = str(tmp_path / "short.rec")
    assert treadle(tmp_path, "record", file, "--seconds", "1").returncode == 0
    assert "missing   nothing" in treadle(tmp_path, "replay", file).stdout


def test_where_nobody_watches_top_shows_one_frame(tmp_path: Path) -> None:
    done = treadle(tmp_path, "top")
    assert (done.returncode, done.stdout.count("treadle top")) == (0, 1)
