"""The turnstile's counters, as figures that never go back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.monitor.pages import WrittenPage

from treadle.monitor import gate
from treadle.monitor.directory import GATE, Series
from treadle.monitor.gate import GatePage, GateTier
from treadle.turnstile import TurnstileError

CRITICAL, NORMAL, BACKGROUND = range(3)
MS = 1_000_000


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenPage]:
    page = WrittenPage(tmp_path / "pages", "GPU-0")
    yield page
    page.close()


def test_what_members_do_is_added_up(written: WrittenPage) -> None:
    written.seat(0, CRITICAL)
    written.seat(5, BACKGROUND)
    page = GatePage(written.path)
    assert page.read(0).members == 2
    for index, launches in ((0, 10), (5, 100)):
        record = written.page.record[index]
        record.launches += launches
        record.predicted_ns += launches * MS
        record.waited_ns += 2 * MS
        record.budget_waited_ns += 3 * MS
        record.memory_used_bytes = 1 << 30
    figures = page.read(10 * MS)
    assert (figures.launches, figures.memory_bytes) == (110, 2 << 30)
    assert figures.work_seconds == pytest.approx(0.110)
    assert figures.waited_seconds == pytest.approx(0.010)


def test_what_was_before_it_was_opened_is_not_counted(written: WrittenPage) -> None:
    written.seat(0, NORMAL)
    written.page.record[0].launches = 1000
    page = GatePage(written.path)
    assert page.read(0).launches == 0
    written.page.record[0].launches = 1001
    assert page.read(10 * MS).launches == 1


def test_counters_do_not_go_back_when_a_member_leaves(written: WrittenPage) -> None:
    page = GatePage(written.path)
    page.read(0)
    written.seat(0, NORMAL)
    written.page.record[0].launches = 7
    assert page.read(10 * MS).launches == 7
    written.leave(0, NORMAL)
    assert page.read(20 * MS).launches == 7
    written.seat(0, NORMAL, generation=2)
    written.page.record[0].launches = 3
    figures = page.read(30 * MS)
    assert (figures.launches, figures.members) == (10, 1)


def test_busy_is_the_part_of_the_window_that_urgent_work_was_marked(written: WrittenPage) -> None:
    written.seat(0, CRITICAL)
    page = GatePage(written.path)
    assert page.read(0).busy == 0.0
    written.unmark(0, CRITICAL, 4 * MS)  # marked and unmarked between two looks
    assert page.read(10 * MS).busy == pytest.approx(0.4)
    assert page.read(20 * MS).busy == 0.0


def test_a_mark_that_lasts_makes_it_busy_all_the_time(written: WrittenPage) -> None:
    written.seat(0, CRITICAL)
    page = GatePage(written.path)
    page.read(0)
    written.mark(0, CRITICAL)
    page.read(10 * MS)  # set at an unknown moment of this window
    assert [page.read(n * 10 * MS).busy for n in (2, 3, 4)] == [1.0, 1.0, 1.0]
    written.unmark(0, CRITICAL, 33 * MS)
    assert page.read(50 * MS).busy == pytest.approx(0.3)
    assert page.read(60 * MS).busy == 0.0


def test_marks_that_follow_each_other_between_looks_are_not_counted_twice(
    written: WrittenPage,
) -> None:
    written.seat(0, CRITICAL)
    page = GatePage(written.path)
    page.read(0)
    written.mark(0, CRITICAL)
    page.read(10 * MS)
    for tick in (2, 3, 4):  # each look finds it marked, anew since the last
        written.unmark(0, CRITICAL, 8 * MS)
        written.mark(0, CRITICAL)
        assert page.read(tick * 10 * MS).busy == pytest.approx(0.8)
    written.unmark(0, CRITICAL, 1 * MS)
    assert page.read(50 * MS).busy == pytest.approx(0.1)
    written.mark(0, CRITICAL)
    assert page.read(60 * MS).busy == 0.0
    assert page.read(70 * MS).busy == 1.0


def test_a_seat_that_rests_is_followed_again_when_it_goes_on(written: WrittenPage) -> None:
    written.seat(0, CRITICAL)
    page = GatePage(written.path)
    for tick in range(3):
        assert page.read(tick * 10 * MS).launches == 0
    written.page.record[0].launches = 5
    written.mark(0, CRITICAL)
    assert page.read(30 * MS)[:2] == (0.0, 5)
    assert page.read(40 * MS)[:2] == (1.0, 5)  # nothing but the mark's time goes on
    written.unmark(0, CRITICAL, 15 * MS)
    assert page.read(50 * MS).busy == pytest.approx(0.5)
    assert page.read(60 * MS).busy == 0.0


def test_every_field_of_a_seat_is_read_from_its_place(written: WrittenPage) -> None:
    page = GatePage(written.path)
    page.read(0)
    written.seat(63, BACKGROUND, generation=(1 << 32) - 1)
    record = written.page.record[63]
    record.launches, record.predicted_ns, record.memory_used_bytes = 1 << 40, 2 << 40, 3 << 40
    record.waited_ns, record.budget_waited_ns = 4 << 40, 5 << 40
    found = page.read(10 * MS)
    assert (found.launches, found.memory_bytes, found.members) == (1 << 40, 3 << 40, 1)
    assert found.work_seconds == (2 << 40) / 1e9
    assert found.waited_seconds == (9 << 40) / 1e9


def test_background_marks_make_nothing_busy(written: WrittenPage) -> None:
    written.seat(0, BACKGROUND)
    page = GatePage(written.path)
    page.read(0)
    written.mark(0, BACKGROUND)
    page.read(10 * MS)
    assert page.read(20 * MS).busy == 0.0


def test_dead_members_are_not_counted(written: WrittenPage) -> None:
    written.seat(0, CRITICAL)
    written.seat(1, CRITICAL)
    page = GatePage(written.path)
    page.dead = 0b10
    assert page.read(0).members == 1


@pytest.mark.parametrize("content", [b"short", bytes(1 << 16)])
def test_a_file_that_is_no_page_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "GPU-0").write_bytes(content)
    with pytest.raises(TurnstileError):
        GatePage(tmp_path / "GPU-0")


class Written(list[tuple[int, float, float | None, float, str]]):
    """Takes what a tier writes."""

    def write(
        self, series: int, at: float, value: float | None, window: float, reason: str = ""
    ) -> None:
        self.append((series, at, value, window, reason))

    def write_together(
        self, series: Sequence[int], at: float, values: Sequence[float], window: float
    ) -> None:
        for place, (number, value) in enumerate(zip(series, values, strict=True)):
            self.write(number, at, value, 0.0 if place else window)

    def tick(self) -> None:
        """Nobody counts."""


def tier(folder: Path) -> tuple[GateTier, Written]:
    written = Written()
    series = [Series("GPU-0", metric, GATE, 0.01) for metric in gate.METRICS]
    return GateTier(folder, series, written), written


def test_a_gpu_without_a_page_says_so(tmp_path: Path) -> None:
    gates, written = tier(tmp_path)
    gates.look_for_pages(1.0)
    gates.tick(1)
    assert [row[2] for row in written] == [None] * 6
    assert {row[4] for row in written} == {"no program has used it under treadle run yet"}


def test_a_page_that_comes_later_is_found_and_one_that_is_replaced_is_opened_again(
    tmp_path: Path,
) -> None:
    gates, written = tier(tmp_path)
    gates.look_for_pages(1.0)
    page = WrittenPage(tmp_path, "GPU-0")
    gates.look_for_pages(2.0)
    first = gates.pages["GPU-0"]
    gates.look_for_pages(3.0)
    assert gates.pages["GPU-0"] is first
    page.path.rename(tmp_path / "old")
    page.close()
    WrittenPage(tmp_path, "GPU-0").close()
    gates.look_for_pages(4.0)
    assert gates.pages["GPU-0"] is not first
    assert written[-1][1] == 1.0


def test_counters_do_not_go_back_when_a_page_is_replaced(tmp_path: Path) -> None:
    gates, written = tier(tmp_path)
    page = WrittenPage(tmp_path, "GPU-0")
    page.seat(0, NORMAL)
    gates.look_for_pages(0.0)
    gates.tick(0)
    page.page.record[0].launches = 7
    gates.tick(10 * MS)
    page.path.unlink()
    gates.look_for_pages(1.0)
    again = WrittenPage(tmp_path, "GPU-0")
    gates.look_for_pages(2.0)
    gates.tick(2000 * MS)
    launches = [row[2] for row in written if row[0] == 1]
    assert launches == [0, 7, None, 7]
    page.close()
    again.close()


def test_ticks_carry_their_window_and_idle_pages_are_written_less_often(
    written: WrittenPage,
) -> None:
    gates, rows = tier(written.path.parent)
    gates.look_for_pages(0.0)
    for number in range(20):
        gates.tick(number * 10 * MS)
    assert len(rows) == 2 * len(gate.METRICS)
    written.seat(0, NORMAL)
    rows.clear()
    for number in range(20, 25):
        gates.tick(number * 10 * MS)
    busy = [row for row in rows if row[0] == 0]
    assert [window for _, _, _, window, _ in busy[1:]] == pytest.approx([0.01] * 4)
