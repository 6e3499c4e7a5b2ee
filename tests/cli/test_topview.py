"""``treadle top``: what one frame looks like."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.cli.frames import busy, device, full_frame, lines, task

from treadle.cli.top import pressed
from treadle.cli.topview import Frame, Goodput, Queue, Sort, View, sparkline
from treadle.devices.device import DeviceEvent, Severity
from treadle.monitor import MonitorSnapshot
from treadle.types import Priority


def row(shown: list[str], word: str) -> str:
    return next(line for line in shown if word in line)


@pytest.mark.parametrize("width", [80, 120])
def test_everything_fits_the_terminal(width: int) -> None:
    shown = lines(full_frame(), width=width)
    assert max(map(len, shown)) <= width
    assert len(shown) == 1 + 1 + 9 + 1 + 4 + 1 + 2 + 1 + 1
    assert "\x1b" not in "".join(shown)


@pytest.mark.parametrize("width", [80, 120])
def test_a_device_is_a_row(width: int) -> None:
    shown = row(lines(full_frame(), width=width), "NVIDIA H200")
    for word in ("93%", "41%", "55%", "97.5/141", "655 W", "71 C", "power"):
        assert word in shown
    assert "█" in shown


def test_a_wide_terminal_has_room_for_the_energy_that_was_drawn() -> None:
    assert "10.00 Wh" in row(lines(full_frame(), width=120), "NVIDIA")
    assert not any("Wh" in line for line in lines(full_frame(), width=80))


def test_what_is_not_known_is_shown_as_that() -> None:
    frame = Frame(snapshot=MonitorSnapshot(at=1.0, devices=(device(power=None),)))
    assert row(lines(frame), "NVIDIA").split() == [
        *("0", "NVIDIA", "H200", "-", "-", "-", "-/141", "-", "-", "-")
    ]


def test_names_are_others_words_and_are_shown_as_they_are() -> None:
    frame = Frame(
        snapshot=MonitorSnapshot(
            at=1.0, devices=(device(name="[/b] :x:"),), trouble="[/]", reasons=("a\x1b[31mb",)
        ),
        tasks=[task("[/x]\x1b[2J", Priority.NORMAL)],
        queues=[Queue(model="[red]m", priority="normal", state="ready", waiting=0)],
        events=[DeviceEvent(1.0, "GPU-0", "ungated", Severity.WARNING, "(\x1b]0;x\x07) [/y]")],
    )
    shown = "\n".join(lines(frame))
    for words in ("[/b] :x:", "[/x]?[2J", "[red]m", "no readings: [/]", "a?[31mb", "(?]0;x?) [/y]"):
        assert words in shown
    assert "\x1b" not in shown


def test_a_device_that_is_at_all_its_limits_fits() -> None:
    most: dict[str, float | None] = {
        **{f"throttled_{reason}": 1.0 for reason in ("power", "thermal", "other")},
        **dict.fromkeys(("sm_activity", "tensor_activity", "dram_activity"), 1.0),
        "memory_used": 139.9 * 2**30,
        "power": 1000.0,
        "temperature": 100.0,
    }
    frame = Frame(
        snapshot=MonitorSnapshot(at=1.0, devices=(device(15, "NVIDIA H200", **most),)),
        history={("GPU-15", "sm_activity"): [1.0] * 12},
    )
    shown = row(lines(frame), "NVIDIA")
    assert shown.split()[:3] == ["15", "NVIDIA", "H200"]
    for words in ("139.9/141", "1000 W", "100 C", "power +2", "█" * 12):
        assert words in shown
    assert "…" not in shown
    assert "power thermal other" in row(lines(frame, width=120), "NVIDIA")


def test_utilization_stands_in_where_activity_is_not_known() -> None:
    frame = Frame(
        snapshot=MonitorSnapshot(at=1.0, devices=(device(sm_activity=None, gpu_utilization=0.5),))
    )
    assert "50%" in row(lines(frame), "NVIDIA")


def test_trouble_and_reasons_are_told() -> None:
    snapshot = MonitorSnapshot(at=1.0, trouble="nvml hangs", reasons=("amd: no driver",))
    shown = lines(Frame(snapshot=snapshot))
    assert "no readings: nvml hangs" in shown
    assert "no other devices: amd: no driver" in shown


def test_tasks_are_in_the_order_of_their_classes() -> None:
    shown = lines(full_frame())
    words = [line.split()[0] for line in shown if "1234567" in line]
    assert words == ["critical", "normal", "background"]
    assert row(shown, "server").split()[-9:] == [
        *("1234567", "3", "busy", "25%", "12.5", "s", "1.5", "s", "3.0")
    ]
    assert "waits" in row(shown, "background")


def test_a_task_that_only_looks_on_is_an_observer() -> None:
    frame = Frame(snapshot=MonitorSnapshot(at=1.0), tasks=[task("node", None)])
    assert row(lines(frame), "node").startswith("observer")


def test_tasks_of_one_class_can_be_asked_for() -> None:
    shown = lines(full_frame(), View(only=Priority.NORMAL))
    assert [line.split()[1] for line in shown if "1234567" in line] == ["notebook"]


def test_devices_can_be_sorted() -> None:
    def first(sort: Sort) -> str:
        return row(lines(full_frame(), View(sort=sort)), "NVIDIA").split()[0]

    assert (first(Sort.INDEX), first(Sort.POWER), first(Sort.TEMPERATURE)) == ("0", "7", "0")


def test_devices_without_the_figure_come_last() -> None:
    devices = (device(0, power=None), busy(1))
    shown = lines(Frame(snapshot=MonitorSnapshot(at=1.0, devices=devices)), View(sort=Sort.POWER))
    assert row(shown, "NVIDIA").split()[0] == "1"


def test_keys_go_round() -> None:
    view = View()
    for sort in ("activity", "memory", "power", "temperature", "index"):
        view = pressed(view, "s")
        assert view.sort == sort
    for only in (Priority.CRITICAL, Priority.NORMAL, Priority.BACKGROUND, None):
        view = pressed(view, "f")
        assert view.only is only
    assert pressed(view, "x") is view


@pytest.mark.parametrize(
    ("values", "top", "expected"),
    [
        ([], None, ""),
        ([None, None], None, ""),
        ([0.0, 0.5, 1.0], 1.0, "▁▅█"),
        ([0.0, None, 0.0], None, "▁ ▁"),
        ([5.0, 10.0], None, "▅█"),
        ([2000.0], 700.0, "█"),
    ],
)
def test_sparklines(values: list[float | None], top: float | None, expected: str) -> None:
    assert sparkline(values, top) == expected


@pytest.mark.parametrize("width", [80, 120])
def test_goodput_is_shown_beside_utilization(width: int) -> None:
    goodput = Goodput(samples_per_second=1234.5, samples_per_watt_hour=99_999.0)
    reporting = replace(task("training", Priority.BACKGROUND), goodput=goodput)
    frame = Frame(
        snapshot=MonitorSnapshot(at=1.0), tasks=[reporting, task("other", Priority.NORMAL)]
    )
    shown = lines(frame, width=width)
    assert max(map(len, shown)) <= width
    words = row(shown, "training").split()
    assert words[words.index("25%") + 1] == "1,234.5"
    assert ("99,999.0" in words) is (width == 120)
    assert row(shown, "other").split()[-4 if width == 80 else -7] == "-"


def test_critical_work_has_the_gpu_while_it_is_marked() -> None:
    """Its launches are not timed: it never waits for anybody."""
    member = replace(task("serve", Priority.CRITICAL).member, marked_seconds=99.0)
    assert member.predicted_seconds == 12.5
    assert member.gpu_seconds == 99.0
    assert replace(member, priority=Priority.BACKGROUND).gpu_seconds == 12.5
    assert replace(member, marked_seconds=0.0).gpu_seconds == 12.5
