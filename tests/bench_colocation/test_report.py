"""What a report says of results whose answers are known."""

from __future__ import annotations

import importlib.util
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from treadle.bench.colocation.command import run
from treadle.bench.colocation.plot import draw
from treadle.bench.colocation.report import Row, make_report
from treadle.bench.colocation.settings import Settings
from treadle.bench.colocation.store import Failure, Store
from treadle.bench.colocation.table import as_markdown, print_tables
from treadle.errors import ConfigError

from .synthetic import calibrate, measure


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two pairs under two modes: 1.1 and 1.2 times native, 6 and 5 of 8 steps per second."""
    store = Store(tmp_path / "results.jsonl")
    for critical in ("resnet20", "resnet45"):
        calibrate(store, critical)
        measure(store, f"{critical}/none/alone", blocks=25)
    measure(store, "none/trainer/alone")
    measure(store, "resnet20/trainer/gate-coop", slower=1.1, steps_per_second=6.0)
    measure(store, "resnet45/trainer/gate-coop", slower=1.2, steps_per_second=4.0)
    measure(store, "resnet20/trainer/timeslice", slower=8.0, steps_per_second=6.4)
    return store


def row(store: Store, cell: str) -> Row:
    return next(row for row in make_report(store).rows if row.cell == cell)


def test_latency_over_native(store: Store) -> None:
    coop = row(store, "resnet20/trainer/gate-coop")
    assert coop.p99_over_native is not None
    assert coop.p50_over_native is not None
    assert coop.p99_over_native.value == pytest.approx(1.1, rel=5e-3)
    assert coop.p50_over_native.value == pytest.approx(1.1, rel=5e-3)
    assert coop.requests == pytest.approx(200 * 20, rel=0.05)


def test_training_kept_of_alone_and_of_what_is_left(store: Store) -> None:
    coop = row(store, "resnet20/trainer/gate-coop")
    assert coop.busy_fraction is not None
    assert coop.busy_fraction == pytest.approx(0.2, rel=0.05)
    assert coop.kept_of_alone is not None
    assert coop.kept_of_left is not None
    assert coop.kept_of_alone.value == pytest.approx(6 / 8, rel=1e-3)
    assert coop.kept_of_left.value == pytest.approx(6 / 8 / (1 - coop.busy_fraction), rel=1e-3)


def test_each_mode_is_summed_up(store: Store) -> None:
    summaries = {summary.mode: summary for summary in make_report(store).summaries}
    assert set(summaries) == {"gate-coop", "timeslice"}
    coop = summaries["gate-coop"]
    assert coop.pairs == 2
    assert coop.p99_geometric_mean == pytest.approx((1.1 * 1.2) ** 0.5, rel=5e-3)
    assert coop.p99_worst == pytest.approx(1.2, rel=5e-3)
    assert coop.alone_worst == pytest.approx(0.5, rel=1e-3)
    assert coop.left_worst == pytest.approx(0.5 / 0.55, rel=0.05)


def test_requests_that_were_never_answered_count_as_waiting(store: Store) -> None:
    measure(store, "resnet20/trainer/mps", unanswered=400)
    mps = row(store, "resnet20/trainer/mps")
    assert mps.unanswered == 400
    assert mps.p99 is not None
    assert mps.p99.value > 10
    assert "| ≥ " in as_markdown(make_report(store))


def test_the_cost_of_the_gate_is_training_under_it(store: Store) -> None:
    measure(store, "none/trainer/gate-cost", steps_per_second=7.84)
    cost = row(store, "none/trainer/gate-cost")
    assert cost.p99_over_native is None
    assert cost.kept_of_alone is not None
    assert cost.kept_of_alone.value == pytest.approx(0.98, rel=1e-3)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    store = Store(tmp_path / "results.jsonl")
    measure(store, "resnet20/trainer/gate")
    store.append(Failure(cell="resnet20/trainer/mps", reason="MPS: no daemon\nand a long tail"))
    bare, failed = make_report(store).rows
    assert bare.p99_over_native is None
    assert bare.kept_of_left is None
    assert bare.note == (
        "no resnet20/none/alone to compare with; no none/trainer/alone to compare with"
    )
    assert failed.note == "MPS: no daemon"
    assert failed.p99 is None


def test_arrivals_drawn_otherwise_are_refused(store: Store) -> None:
    text = store.file.read_text().replace('"seed": 1', '"seed": 2')
    store.file.write_text(text)
    with pytest.raises(ConfigError, match="another program"):
        make_report(Store(store.file))


def test_the_table_has_a_line_for_each_cell(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    print_tables(make_report(store))
    printed = capsys.readouterr().out
    markdown = as_markdown(make_report(store))
    for name in store.cells():
        assert name in printed
        assert f"| {name} |" in markdown


def test_the_command_reports_as_json_without_measuring(
    store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    markdown = tmp_path / "new" / "table.md"
    settings = Settings(out=store.file, report_only=True, as_json=True, markdown=markdown)
    assert run(settings) == 0
    report = json.loads(capsys.readouterr().out)
    assert [line["cell"] for line in report["rows"]] == store.cells()
    assert report["rows"][-1]["p99_over_native"]["value"] == pytest.approx(8.0, rel=5e-3)
    assert report["devices"] == ["made up"]
    assert "| gate-coop | 2 |" in markdown.read_text()


@pytest.mark.skipif(not importlib.util.find_spec("matplotlib"), reason="needs matplotlib")
def test_the_plot_is_an_svg(store: Store, tmp_path: Path) -> None:
    measure(store, "resnet20/trainer/gate-coop@budget=50us", slower=1.05, steps_per_second=5.5)
    file = tmp_path / "plot.svg"
    draw(make_report(store), file)
    root = ET.fromstring(file.read_text())
    assert root.tag.endswith("svg")
    first = file.read_bytes()
    draw(make_report(store), file)
    assert file.read_bytes() == first
