"""What jobs have taken of a GPU's memory, beside served models and programs started by hand."""

from __future__ import annotations

from pathlib import Path

from tests.monitor.pages import WrittenPage

from treadle.programs.holding import Gatekeeper, seat_name
from treadle.types import Priority

GIB = 1 << 30


def test_only_the_memory_of_jobs_is_theirs(tmp_path: Path) -> None:
    page = WrittenPage(tmp_path / "pages", "GPU-0")
    names = [seat_name("train", 7), seat_name("x" * 99, 123456), "model vision", "by hand #3x"]
    for index, name in enumerate(names):
        page.seat(index, Priority.NORMAL)
        page.page.record[index].name = name.encode()
        page.page.record[index].memory_used_bytes = (1 << index) * GIB
    assert Gatekeeper(tmp_path / "pages").memory_bytes("GPU-0") == 3 * GIB
    assert Gatekeeper(tmp_path / "pages").memory_bytes("GPU-1") == 0
    page.close()
