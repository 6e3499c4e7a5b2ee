from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle.bench.arrivals import draw_arrivals
from treadle.bench.trace import Trace, read_trace
from treadle.errors import ConfigError

DATES = """\
TIMESTAMP,ContextTokens
2023-11-16 18:15:46.6805900,374
2023-11-16 18:15:48.6805900,396
2023-11-16 18:15:48.9305900,879
2023-11-16 18:15:50.6805900,91
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "trace.csv"


def trace_of(*times: float, seconds: float, by_peak: bool = False) -> Trace:
    return Trace(times=np.array(times), seconds=seconds, by_peak=by_peak)


def test_dates_become_seconds_from_the_first(file: Path) -> None:
    file.write_text(DATES)
    trace = read_trace(file)
    assert trace.times == pytest.approx([0, 2, 2.25, 4])
    assert trace.seconds == pytest.approx(4 * 4 / 3)  # a mean gap after the last


def test_a_column_of_seconds_is_found_by_its_heading_and_put_in_order(file: Path) -> None:
    file.write_text("tokens, when\n5,107.5\n6,100\n\n7,103\n")
    assert read_trace(file, "when").times.tolist() == [0, 3, 7.5]


def test_a_window_is_cut_out(file: Path) -> None:
    file.write_text("when\n" + "\n".join(map(str, range(100))))
    trace = read_trace(file, window=(10.0, 30.0))
    assert trace.times.tolist() == list(range(20))
    assert (trace.seconds, trace.rate) == (20.0, 1.0)


def test_a_relative_file_is_also_looked_for_among_the_public_data(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(DATES)
    monkeypatch.setenv("TREADLE_DATA", str(file.parent))
    assert len(read_trace(Path("trace.csv")).times) == 4


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", r"no column ''; there are none"),
        ("when\n", "0 arrivals"),
        ("when\n1\n", "1 arrivals"),
        ("when\n1\nsoon\n", r"trace\.csv:3: when: 'soon'; allowed: seconds, or a date"),
        ("when\n1\nnan\n", r":3: when: 'nan'"),
        ("when,x\n1,1\n,2\n", r":3: when: ''"),
        ("x,when\n1,1\n2\n", r"no column 'y'; there are x, when"),
        ("when\n1\n2023-11-16 18:15:46\n", r":3: when: '2023"),
        ("when\n2023-11-16 18:15:46\n2023-11-16 18:15:46+00:00\n", r":3: when: '2023"),
    ],
)
def test_what_is_no_trace_is_refused_by_its_line(file: Path, content: str, text: str) -> None:
    file.write_text(content)
    with pytest.raises(ConfigError, match=text):
        read_trace(file, "y" if "'y'" in text else None)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"when\n\xff\xfe\n")
    with pytest.raises(ConfigError, match=r"binary\.csv: "):
        read_trace(tmp_path / "binary.csv")


def test_an_empty_window_is_refused(file: Path) -> None:
    file.write_text(DATES)
    with pytest.raises(ConfigError, match="fewer than 2 arrivals between 100 and 200 s"):
        read_trace(file, window=(100.0, 200.0))


def test_a_trace_is_played_faster_with_its_gaps_in_proportion_and_again_at_its_end() -> None:
    trace = trace_of(0, 2, 3, seconds=4.0)
    schedule = draw_arrivals({"a": 1.5}, 4.0, 1, trace)
    assert schedule.times.tolist() == [0, 1, 1.5, 2, 3, 3.5]


def test_models_begin_at_different_places_of_it() -> None:
    schedule = draw_arrivals({"a": 0.75, "b": 0.75}, 4.0, 1, trace_of(0, 2, 3, seconds=4.0))
    assert schedule.times[schedule.model_index == 0].tolist() == [0, 2, 3]
    assert schedule.times[schedule.model_index == 1].tolist() == [0, 1, 2]


def test_the_busiest_second_has_the_rate_that_was_asked_for() -> None:
    random = np.random.default_rng(1)
    times = np.sort(np.concatenate([random.uniform(0, 1000, 5000), random.uniform(500, 510, 500)]))
    trace = trace_of(*times, seconds=1000.0, by_peak=True)
    played = draw_arrivals({"a": 300.0}, 1000.0 / trace.pace(300.0), 1, trace).times
    assert len(played) == 5500
    in_a_second = np.searchsorted(played, played + 1) - np.arange(len(played))
    assert in_a_second.max() == pytest.approx(300, rel=0.02)


def test_a_peak_that_the_trace_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="the trace's 3 arrivals give no second with 4"):
        trace_of(0, 2, 3, seconds=4.0, by_peak=True).pace(4.0)
