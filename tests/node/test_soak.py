"""Every answer is the caller's own, whatever happens to workers and models meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_request_is_lost_or_mixed_while_workers_are_killed_and_models_reloaded() -> None:
    command = [sys.executable, str(ROOT / "bench" / "soak.py"), "--requests", "6000"]
    trouble = ["--kill-every", "0.5", "--reload-every", "0.7", "--cancel", "0.05"]
    done = subprocess.run(
        [*command, *trouble],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "answered right" in done.stdout
    assert "(killed)" in done.stdout
