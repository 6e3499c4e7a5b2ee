"""Real runs of the command, against nodes of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from treadle.bench.calibrate import Effort
from treadle.bench.measure import Plan, measure
from treadle.bench.ownnode import OwnNode
from treadle.bench.results import Results
from treadle.client.node import NodeClient
from treadle.errors import ConfigError, RequestError

SHORT = Effort(service=0.1, warm_up=0.1, saturation=0.2)
COMMAND = [sys.executable, "-m", "treadle.cli.main", "bench", "serve"]
LIMIT_SECONDS = 60


def no_stage(text: str, seconds: float) -> None:
    pass


def assert_all_answered(results: Results) -> None:
    for run in results.runs:
        assert run.total.offered == run.total.completed > 0
        assert (run.total.rejected, run.total.failed) == (0, 0)


def test_the_command_measures_saves_and_prints_json(two_models: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    options = ["--rate", "60", "--seconds", "2", "--json", "--output", str(output)]
    done = subprocess.run(
        [*COMMAND, str(two_models), "--policy", "fifo", *options],
        check=False,
        capture_output=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stderr) == (0, b"")  # no terminal, no progress bar
    assert done.stdout == output.read_bytes()
    document = json.loads(done.stdout)
    (run,) = document["runs"]
    assert run["policy"] == "fifo"
    assert set(run["models"]) == {"urgent", "patient"}
    assert run["total"]["completed"] == run["total"]["offered"] > 0
    assert run["models"]["urgent"]["objective_met_fraction"] == 1.0
    assert run["models"]["patient"]["objective_met_fraction"] is None
    assert document["calibration"]["capacity_requests_per_second"] is None
    assert sum(document["rates"].values()) == pytest.approx(60)
    assert "--seconds 2" in document["command"]


async def test_policies_meet_the_same_arrivals_at_a_part_of_the_capacity(two_models: Path) -> None:
    plan = Plan(
        file=two_models,
        policies=("fifo", "priority"),
        load=0.05,
        seconds=2.0,
        mix=("urgent=3",),
        effort=SHORT,
    )
    results = await measure(plan, no_stage)
    first, second = results.runs
    assert (first.policy, second.policy) == ("fifo", "priority")
    assert results.calibration.policy == "fifo"
    for name in ("urgent", "patient"):
        assert first.models[name].offered == second.models[name].offered
    capacity = results.calibration.capacity_requests_per_second
    assert capacity is not None
    assert sum(results.rates.values()) == pytest.approx(0.05 * capacity)
    assert len(results.comparisons) == 1
    assert_all_answered(results)


async def test_without_a_file_the_running_node_is_driven(
    two_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with OwnNode(two_models, "priority") as node:
        async with NodeClient(node.socket) as client:
            await node.wait_ready(client)
        monkeypatch.setenv("TREADLE_SOCKET", str(node.socket))
        plan = Plan(rate=40.0, seconds=1.0, mix=("patient=0",), effort=SHORT)
        results = await measure(plan, no_stage)
    assert [run.policy for run in results.runs] == ["priority"]
    assert set(results.runs[0].models) == {"urgent"}
    assert_all_answered(results)


async def test_a_running_node_keeps_its_policy() -> None:
    with pytest.raises(ConfigError, match=r"--policy .*FILE\.toml"):
        await measure(Plan(policies=("fifo",)), no_stage)


async def test_a_model_that_fails_on_its_example_is_named(configuration: Any) -> None:
    configuration.add("broken", kind="Broken")
    with pytest.raises(RequestError, match="'broken' failed: ValueError: out of order"):
        await measure(Plan(file=configuration.file, rate=10.0, effort=SHORT), no_stage)


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--policy", "lifo"], 3, "--policy: 'lifo'; allowed: fifo, priority"),
        (["--mix", "nobody=1"], 3, "--mix 'nobody=1'; allowed: MODEL=PART with one of urgent"),
        (["--load", "3"], 2, "--load"),
    ],
)
def test_a_wrong_option_is_one_line(
    two_models: Path, options: list[str], code: int, text: str
) -> None:
    done = subprocess.run(
        [*COMMAND, str(two_models), *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_signal_ends_the_node_too(
    configuration: Any, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    configuration.add("m", kind="Signalling", more=f"parameters = {{ pipe = '{pipe}' }}")
    with contextlib.ExitStack() as stack:
        reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, reading)
        command = stack.enter_context(
            subprocess.Popen(
                [*COMMAND, str(configuration.file)],
                env=os.environ | {"TMPDIR": str(tmp_path)},  # not cleaned up after SIGKILL
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ignored by whoever runs this in the background, and that is inherited.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
            )
        )
        stack.callback(command.kill)
        assert select.select([reading], [], [], LIMIT_SECONDS)[0]
        node = os.pidfd_open(int(os.read(reading, 100)))
        stack.callback(os.close, node)
        command.send_signal(number)
        output, errors = command.communicate(timeout=LIMIT_SECONDS)
        assert (command.returncode, output, errors) == (code, b"", b"")
        assert select.select([node], [], [], LIMIT_SECONDS)[0]  # readable: it has ended
