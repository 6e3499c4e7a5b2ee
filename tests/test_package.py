"""What ``import treadle`` gives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import treadle
import treadle.turnstile


def test_everything_that_is_named_is_there_and_it_is_not_much() -> None:
    assert len(treadle.__all__) < 12
    for name in treadle.__all__:
        assert getattr(treadle, name) is not None


def test_the_turnstile_is_reached_from_the_top_and_loaded_only_then() -> None:
    assert treadle.critical is treadle.turnstile.critical
    program = "import sys, treadle; sys.exit('treadle.turnstile' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_what_is_not_there_is_said_as_usual() -> None:
    with pytest.raises(AttributeError, match="module 'treadle' has no attribute 'nothing'"):
        _ = treadle.nothing


def test_a_cooperative_program_runs_where_there_is_no_gate() -> None:
    program = (
        "import treadle\n"
        "for _ in range(2):\n"
        "    with treadle.critical(), treadle.using(treadle.Priority.BACKGROUND):\n"
        "        treadle.assign(0, treadle.Priority.BACKGROUND)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TREADLE_GATE_LIBRARY": "/nowhere/gate.so"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr.count("nothing is held back for this program") == 1
    assert "/nowhere/gate.so" in done.stderr
