"""``treadle bench colocation``: its options, and what it says where something is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from treadle.bench.colocation.cells import SETS, known_cells
from treadle.bench.colocation.needs import check_gpu
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.store import Failure, Store
from treadle.bench.colocation.workloads import Scale
from treadle.cli import colocation
from treadle.cli.exits import Exit
from treadle.cli.main import app
from treadle.errors import ConfigError, TreadleError

NO_GPU = """
import sys
sys.exit("OSError: libcuda.so.1: no such file")
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "colocation", *arguments], env={"COLUMNS": "80"})


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "treadle", "bench", "colocation", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """What the command asks to be measured, instead of measuring it."""
    settings: list[Settings] = []

    def measure(found: Settings) -> int:
        settings.append(found)
        return len(settings) - 1

    monkeypatch.setattr(colocation, "measure", measure)
    return settings


def test_without_options_it_is_what_the_settings_say(asked: list[Settings]) -> None:
    assert invoke().exit_code == Exit.OK
    assert asked == [Settings()]


def test_every_option_reaches_the_settings(asked: list[Settings], tmp_path: Path) -> None:
    line = (
        "--cells mps --seconds 5 --training-seconds 4 --min-requests 100 --out x.jsonl --json "
        "--markdown x.md --plot x.svg --limit-seconds 9 --report-only --no-baselines --fresh "
        "--gate-library gate.so --device cpu --scale tiny --seed 3"
    )
    assert invoke(*line.split()).exit_code == Exit.OK
    assert asked == [
        Settings(
            cells="mps",
            seconds=5,
            training_seconds=4,
            min_requests=100,
            out=Path("x.jsonl"),
            as_json=True,
            markdown=Path("x.md"),
            plot=Path("x.svg"),
            limit_seconds=9,
            report_only=True,
            baselines=False,
            fresh=True,
            gate_library=Path("gate.so"),
            device="cpu",
            scale=Scale.TINY,
            seed=3,
        )
    ]


def test_a_failed_cell_is_a_failed_command(asked: list[Settings]) -> None:
    assert [invoke().exit_code for _ in range(2)] == [Exit.OK, Exit.FAILED]


def test_the_cells_are_listed_without_torch_and_without_a_gpu() -> None:
    program = (
        "import sys\n"
        "from treadle.cli.main import app\n"
        "app(['bench', 'colocation', '--list'], standalone_mode=False)\n"
        "assert not {'torch', 'matplotlib'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == [str(cell) for cell in known_cells()]


def test_the_help_names_every_set_of_cells() -> None:
    help_text = invoke("--help").output
    assert [name for name in SETS if name not in help_text] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--cells", "nothing"], "'nothing' is no cell"),
        (["--scale", "huge"], "--scale: 'huge'; allowed: full, tiny"),
        (["--device", "tpu"], "--device: 'tpu'; allowed: cuda, cpu"),
    ],
)
def test_a_wrong_option_is_said(arguments: list[str], says: str) -> None:
    error = invoke(*arguments).exception
    assert isinstance(error, ConfigError)
    assert says in str(error)


@pytest.mark.parametrize("option", ["--seconds=0", "--min-requests=0", "--seed=-1"])
def test_a_number_out_of_range_is_a_usage_error(option: str) -> None:
    assert invoke(option).exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (NO_GPU, "needs a GPU and its driver: OSError: libcuda.so.1: no such file"),
        ("print('code 100')", "the driver answers with code 100"),
        ("print(0)", "the driver knows none"),
        ("import time; time.sleep(60)", "does not answer in 1 s"),
    ],
)
def test_a_missing_gpu_is_said(answer: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: ...)
    with pytest.raises(TreadleError, match=says):
        check_gpu(answer, answer_seconds=10.0 if "sleep" not in answer else 1.0)


def test_a_gpu_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: ...)
    check_gpu("print(1)")


@pytest.mark.parametrize(
    ("missing", "arguments", "says"),
    [
        ("torch", [], "measuring needs PyTorch: install treadle[torch]"),
        ("matplotlib", ["--plot", "x.svg"], "a plot needs matplotlib: install treadle[plot]"),
    ],
)
def test_a_missing_package_is_said_before_anything_is_started(
    missing: str,
    arguments: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else ...)
    error = invoke("--out", str(tmp_path / "results.jsonl"), *arguments).exception
    assert isinstance(error, TreadleError)
    assert str(error) == says


def test_what_is_missing_is_one_line_and_an_exit_code(tmp_path: Path) -> None:
    # No driver here, or no GPU that it may use.
    done = run("--out", str(tmp_path / "results.jsonl"), CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (Exit.FAILED, "")
    assert done.stderr.startswith("treadle: measuring needs ")
    assert done.stderr.count("\n") == 1


def test_the_table_is_json_on_standard_output(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    Store(results).append(Failure(cell="none/trainer/alone", reason="out of luck"))
    done = run("--report-only", "--json", "--out", str(results))
    assert (done.returncode, done.stderr) == (Exit.OK, "")
    (row,) = json.loads(done.stdout)["rows"]
    assert "out of luck" in row["note"]
