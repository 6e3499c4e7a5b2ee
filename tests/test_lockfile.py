"""Files that one process holds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.lockfile import HeldError, hold

HOLDER = "import sys; from pathlib import Path; from treadle.lockfile import hold\n"
HOLDER += "held = hold(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"


def test_one_process_at_a_time_holds_a_file_and_it_falls_with_that_process(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    command = [sys.executable, "-c", HOLDER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(HeldError) as held:
            hold(file)
        assert held.value.holder == str(holder.pid)
        holder.send_signal(signal.SIGKILL)
    with hold(file):
        assert file.read_text() == str(os.getpid())
    with hold(file):
        pass


def test_a_holder_that_does_not_say_who_it_is_is_unknown(tmp_path: Path) -> None:
    with hold(tmp_path / "lock"):
        (tmp_path / "lock").write_text("")
        with pytest.raises(HeldError, match="process unknown holds it"):
            hold(tmp_path / "lock")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        hold(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()
