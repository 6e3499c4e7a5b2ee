from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from treadle.bench.mix.outcome import read_document

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_SECONDS = 120
_MARK = "BENCH_MIX_TEST"


def measure(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "bench/node_gpu.py", "--output", str(output), *options],
        cwd=ROOT,
        env=os.environ | {"TREADLE_DEVICES": "none", _MARK: str(output)},
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )


def left_behind(output: Path) -> list[str]:
    """Processes of a play that are still there."""
    mark, found = f"{_MARK}={output}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(entry.name)
        except OSError:
            continue
    return found


def test_the_smallest_node_goes_the_whole_way_on_the_cpu(tmp_path: Path) -> None:
    file = tmp_path / "node.json"
    options = ["--scale", "tiny", "--device", "cpu", "--scenario", "control"]
    done = measure(file, *options, "--mode", "controller", "--seconds", "2", "--cooperative")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = read_document(file).runs
    (service,), (trainer,) = run.services, run.trainers
    assert not run.failed
    assert service.offered > 0
    assert service.answered == service.offered
    assert trainer.steps > 0
    assert trainer.samples_per_second > 0
    assert len(run.samples) == 3
    assert "controller" in done.stdout
    assert not left_behind(file)


def test_what_the_time_does_not_suffice_for_is_left_out(tmp_path: Path) -> None:
    options = ["--scale", "tiny", "--device", "cpu", "--limit-seconds", "1"]
    done = measure(tmp_path / "node.json", *options, "--scenario", "burst")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("left out") == 4
    assert not (tmp_path / "node.json").exists()


def test_a_mode_of_no_scenario_is_refused(tmp_path: Path) -> None:
    done = measure(tmp_path / "node.json", "--scenario", "burst", "--mode", "parallel")
    assert done.returncode == 1
    assert "no mode 'parallel' there; allowed: controller" in done.stderr
