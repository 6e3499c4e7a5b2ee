"""What was recorded of an H200 shows what was done to it, also when it is played again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import Struct

from treadle.bench.monitoring.checks import check, off_spans
from treadle.bench.monitoring.phases import AFTER, GATE, IDLE, MPS, WAVE, Phase, Span
from treadle.bench.monitoring.tape import Figures
from treadle.clock import ManualClock
from treadle.devices.device import DeviceEvent, DeviceInfo, DeviceKind
from treadle.monitor import ring
from treadle.monitor.recording import Recorder, read
from treadle.monitor.replay import replay, seconds_of, span
from treadle.monitor.ring import Reader, Writer
from treadle.monitor.sampler import Sampler, plan
from treadle.monitor.spending import CpuTime

DATA = Path(__file__).parents[1] / "data"
BEGAN = 1000.0


class Document(Struct):
    """What is needed of the results that were saved beside the recording."""

    device: DeviceInfo
    phases: list[Phase]


def moved(spans: Sequence[Span], seconds: float) -> tuple[Span, ...]:
    return tuple((begin + seconds, end + seconds) for begin, end in spans)


def phases_after(phases: Sequence[Phase], seconds: float) -> list[Phase]:
    """The same phases so much later."""
    replace = msgspec.structs.replace
    return [
        replace(
            phase,
            began=phase.began + seconds,
            ended=phase.ended + seconds,
            loads=tuple(replace(load, on=moved(load.on, seconds)) for load in phase.loads),
        )
        for phase in phases
    ]


@pytest.fixture(scope="module")
def document() -> Document:
    return msgspec.json.decode((DATA / "h200.json").read_bytes(), type=Document)


@pytest.fixture(scope="module")
def figures(document: Document) -> Figures:
    (part,) = read(DATA / "h200.rec").parts
    return Figures(part, document.device.uuid)


@pytest.fixture(scope="module")
def phases(document: Document) -> dict[str, Phase]:
    return {phase.name: phase for phase in document.phases}


def played_again(file: Path) -> Figures:
    """Play the recording as a device that a sampler reads, and record what that reads."""
    recording, clock = read(DATA / "h200.rec"), ManualClock(BEGAN)
    devices, events = replay(recording, clock), list[DeviceEvent]()
    directory, sources = plan(devices, [])
    memory = ring.create()
    try:
        writer = Writer(memory, directory)
        sampler = Sampler(
            devices,
            sources,
            writer,
            folder=file.parent / "pages",
            clock=clock,
            on_event=events.append,
            cpu=CpuTime(thread=lambda: 0.0, process=lambda: 0.0),
        )
        writer.ready()
        reader = Reader(memory)
        with Recorder(file) as recorder:
            taken = BEGAN
            while clock.now() < BEGAN + seconds_of(recording) + 2.0:
                clock.advance(sampler.step() - clock.now())
                if clock.now() > taken + 5.0:
                    recorder.take(reader, events)
                    taken = clock.now()
                    events.clear()
            recorder.take(reader, events)
    finally:
        os.close(memory)
    (part,) = read(file).parts
    return Figures(part, devices[0].info.uuid)


def test_it_is_of_an_h200_and_every_phase_was_played(document: Document) -> None:
    assert (document.device.name, document.device.kind) == ("NVIDIA H200", DeviceKind.NVIDIA)
    assert [phase.name for phase in document.phases] == [IDLE, WAVE, GATE, MPS, AFTER]
    assert not [phase.name for phase in document.phases if phase.skipped]


def test_it_shows_all_that_was_done(figures: Figures, document: Document) -> None:
    checks = check(figures, document.phases)
    assert [one for one in checks if one.passed is not True] == []
    assert len(checks) > 35


def test_a_monitor_that_reads_it_again_shows_all_that_was_done(
    document: Document, tmp_path: Path
) -> None:
    (part,) = read(DATA / "h200.rec").parts
    later = phases_after(document.phases, BEGAN - span(part)[0])
    checks = check(played_again(tmp_path / "again.rec"), later)
    assert [one for one in checks if one.passed is not True] == []


# of a metric: seconds after an edge at which the load's level must be reached
LAGS = [("power", 0.1), ("sm_activity", 0.35), ("tensor_activity", 0.35)]


@pytest.mark.parametrize(("metric", "most_seconds"), LAGS)
def test_the_square_wave_is_seen_up_and_down(
    figures: Figures, phases: dict[str, Phase], metric: str, most_seconds: float
) -> None:
    phase = phases[WAVE]
    (load,) = phase.loads
    column = figures.column(metric)
    middle = (column.value.max() + column.value.min()) / 2
    rising = load.on[1:]
    falling = [(b, e) for b, e in off_spans(load, phase) if e - b > most_seconds]  # or it ended
    assert len(rising) >= 3
    for spans, above in ((rising, True), (falling, False)):
        for begin, end in spans:
            inside = (column.at > begin) & (column.at < end)
            reached = column.at[inside & ((column.value > middle) == above)]
            assert reached[0] - begin <= most_seconds


def test_energy_is_the_integral_of_power_from_begin_to_end(figures: Figures) -> None:
    energy, power = figures.column("energy"), figures.column("power")
    grid = np.arange(energy.at[0], energy.at[-1], 0.01)
    joules = float(np.interp(grid, power.at, power.value).sum() * 0.01)
    assert float(energy.value[-1] - energy.value[0]) == pytest.approx(joules, rel=0.1)


def test_two_sat_at_the_turnstile_and_only_critical_work_made_it_busy(
    figures: Figures, phases: dict[str, Phase]
) -> None:
    phase = phases[GATE]
    critical, background = phase.loads
    members = figures.within("gate_members", [(phase.began, phase.ended)], 0.0)
    assert set(members.tolist()) == {2.0}
    busy = figures.within("gate_busy", critical.on, 0.03)
    idle = figures.within("gate_busy", off_spans(critical, phase), 0.03)
    assert busy.mean() > 0.98
    assert idle.mean() < 0.02
    launched = figures.growth("gate_launches", (phase.began, phase.ended))
    assert launched == critical.launches + background.launches
    for begin, end in off_spans(critical, phase)[:-1]:  # background's launches fill these
        work = figures.growth("gate_work", (begin, end))
        assert work == pytest.approx(end - begin, rel=0.05)


def test_the_turnstile_was_read_every_10_ms(figures: Figures, phases: dict[str, Phase]) -> None:
    phase, at = phases[GATE], figures.column("gate_busy").at
    gaps = np.diff(at[(at > phase.began) & (at < phase.ended)])
    assert np.quantile(gaps, 0.5) == pytest.approx(0.01, rel=0.01)
    assert np.quantile(gaps, 0.99) < 0.011


def test_power_came_every_20_ms(figures: Figures) -> None:
    at = figures.column("power").at
    assert np.median(np.diff(at)) == pytest.approx(0.02, rel=0.05)
