"""For how long a mark that nobody set by hand is held after the GPU has finished."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.turnstile import build as gate_build

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "gaps.h"
int main(int argc, char **argv)
{
    struct gaps gaps = {0};
    for (int i = 2; i < argc; i++)
        gap_seen(&gaps, strtoull(argv[i], NULL, 10) * US, strtoull(argv[1], NULL, 10) * US);
    printf("%llu", (unsigned long long)gaps.hold_ns / US);
    return 0;
}
"""


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that learns the pauses that it is given, after the longest to bridge."""
    folder = tmp_path_factory.mktemp("gaps")
    source, binary = folder / "gaps.c", folder / "gaps"
    source.write_text(PROGRAM)
    command = [*gate_build.compiler(), "-std=gnu11", f"-I{gate_build.NATIVE}", "-o", str(binary)]
    subprocess.run([*command, str(source)], check=True)
    return binary


def hold_us(gaps: Path, pauses_us: Sequence[int], longest_us: int = 1000) -> int:
    command = [str(gaps), str(longest_us), *map(str, pauses_us)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_pauses_inside_requests_are_bridged(gaps: Path) -> None:
    assert 300 <= hold_us(gaps, [300, 300, 300, 5000] * 20) <= 1000


def test_the_pause_between_requests_in_line_is_bridged(gaps: Path) -> None:
    """One request in five finds another before it; the others are milliseconds apart."""
    assert 30 <= hold_us(gaps, [30, 4000, 7000, 3000, 5000] * 20) <= 128


@pytest.mark.parametrize(
    "pauses", [[4000] * 100, [30] + [4000] * 20, [300, 4000, 7000, 3000, 5000] * 20]
)
def test_requests_that_stand_alone_hold_nobody_back(gaps: Path, pauses: list[int]) -> None:
    """Nor do a few brief pauses, or some that are as long as a hold would cost."""
    assert hold_us(gaps, pauses) == 0


def test_nothing_is_bridged_if_that_is_forbidden(gaps: Path) -> None:
    assert hold_us(gaps, [30] * 100, longest_us=0) == 0


def test_what_changed_is_learned_anew(gaps: Path) -> None:
    assert hold_us(gaps, [30] * 1000) > 0
    assert hold_us(gaps, [30] * 1000 + [4000] * 8000) == 0
