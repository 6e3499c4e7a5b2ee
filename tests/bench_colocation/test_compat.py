"""The table of what works: every program is bounded, and none is silently left out."""

from __future__ import annotations

import os
import sys

import pytest

from treadle.bench.colocation.compat import Verdict, as_markdown, main, run_bounded
from treadle.bench.colocation.programs import ABSENT, PROGRAMS

PYTHON = [sys.executable, "-c"]


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        ("print('noise'); print('200 rounds')", "pass", "200 rounds"),
        (f"print('no such library'); exit({ABSENT})", "absent", "no such library"),
        ("raise ValueError('wrong sum')", "fail", "exit code 1: ValueError: wrong sum"),
        ("import os; os.kill(os.getpid(), 11)", "fail", "exit code -11: said nothing"),
    ],
)
def test_how_a_program_ended(script: str, outcome: str, reason: str) -> None:
    verdict = run_bounded("it", [*PYTHON, script], os.environ, 60)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)


def test_a_program_that_hangs_fails() -> None:
    verdict = run_bounded("it", [*PYTHON, "import time; time.sleep(600)"], os.environ, 0.5)
    assert verdict.outcome == "fail"
    assert verdict.reason.startswith("hung for")


def test_programs_say_what_they_lack() -> None:
    command = [sys.executable, "-m", "treadle.bench.colocation.programs", "cupy"]
    verdict = run_bounded("cupy", command, os.environ, 60)
    assert verdict.outcome in ("absent", "pass")


def test_the_table() -> None:
    verdicts = [Verdict(program="eager", outcome="pass", reason="a|b", seconds=1.5, launches=7)]
    assert "| eager | pass | a/b | 7 | 1.5 |" in as_markdown(verdicts)


def test_unknown_programs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["opencl"])
    assert ", ".join(PROGRAMS) in capsys.readouterr().err
