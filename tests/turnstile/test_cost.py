"""What the gate costs a launch. Printed (``pytest -s``), never asserted: machines differ."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.turnstile.conftest import SOURCES
from tests.turnstile.harness import World
from tests.turnstile.test_turnstile import marker

from treadle.turnstile import build as gate_build


def test_the_cost_of_a_launch_is_shown(world: World, tmp_path: Path) -> None:
    binary = tmp_path / "bench_launch"
    source = SOURCES / "bench_launch.c"
    command = [*gate_build.compiler(), "-O2", f"-I{gate_build.NATIVE}", "-o", str(binary)]
    subprocess.run([*command, str(source), "-ldl"], check=True)

    def measure(**more: str) -> float:
        environment = world.environment(**more)
        count = os.environ.get("TREADLE_BENCH_LAUNCHES", "20000")
        done = subprocess.run(
            [str(binary), count], env=environment, capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    bare = measure(LD_PRELOAD="")
    costs = {"open": measure() - bare}
    costs["as critical"] = measure(TREADLE_CLASS="critical") - bare
    marker(world)
    with world.page() as page:
        costs["a budget of 100 us"] = measure() - bare
        page.set_knob("budget_ns", 0)
        costs["no budget, only the look"] = measure() - bare
    for name, cost in costs.items():
        print(f"gate, {name}: {cost:.0f} ns a launch")
