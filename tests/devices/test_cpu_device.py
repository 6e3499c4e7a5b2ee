"""The CPU as the monitor sees it, on machines made of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.clock import ManualClock
from treadle.devices.check import check_device
from treadle.devices.cpu import CPUDevice
from treadle.devices.device import Reading

GIB = 1 << 30


class Machine:
    """The files of a machine with two cores that we may use, of four."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(100.0)
        self.ticks(user=0, idle=0)
        self.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 400 kB\n")
        self.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Made CPU\n")

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def ticks(self, *, user: int, idle: int) -> None:
        """Of core 0; core 1 is idle all the time, and cores 2 and 3 busy, but not ours."""
        rows = [
            f"cpu0 {user} 0 0 {idle} 0 0 0 0 0 0",
            f"cpu1 0 0 0 {user + idle} 0 0 0 0 0 0",
            f"cpu2 {user + idle} 0 0 0 0 0 0 0 0 0",
        ]
        self.write("proc/stat", "\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *rows, "intr 5"]))

    def open(self) -> CPUDevice:
        return CPUDevice(clock=self.clock, root=self.root)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    sizes = {"SC_PHYS_PAGES": 16 * GIB >> 12, "SC_PAGE_SIZE": 1 << 12}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    return Machine(tmp_path)


def read(device: CPUDevice, source: str) -> dict[str, Reading]:
    (found,) = [one for one in device.sources() if one.name == source]
    return {reading.metric: reading for reading in found.read()}


def test_it_keeps_the_interface_with_everything_and_with_nothing(
    machine: Machine, tmp_path: Path
) -> None:
    check_device(machine.open(), between=lambda: machine.clock.advance(0.2))
    empty = CPUDevice(clock=machine.clock, root=tmp_path / "empty")
    check_device(empty, between=lambda: machine.clock.advance(0.2))
    for source in empty.sources():
        assert all(one.value is None and one.reason for one in source.read())


def test_this_machine_keeps_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    clock = ManualClock()
    check_device(CPUDevice(clock=clock), between=lambda: clock.advance(0.2))


def test_what_it_is(machine: Machine) -> None:
    info = machine.open().info
    assert (info.name, info.cores, info.memory_bytes) == ("Made CPU", 2, 16 * GIB)
    assert info.host_cores == (0, 1)


def test_use_is_that_of_our_cores_over_the_time_between(machine: Machine) -> None:
    device = machine.open()
    assert read(device, "cpu.usage")["cpu_utilization"].value is None
    machine.ticks(user=30, idle=70)
    machine.clock.advance(1.0)
    used = read(device, "cpu.usage")["cpu_utilization"]
    assert used.value == pytest.approx(0.15)
    assert (used.sampled_at, used.window_seconds) == (101.0, 1.0)
    machine.clock.advance(0.01)
    assert read(device, "cpu.usage")["cpu_utilization"] == used  # no window is over


def test_under_a_quota_use_is_that_of_the_quota(machine: Machine) -> None:
    machine.write("sys/fs/cgroup/cpu.max", "50000 100000\n")
    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 1000000\nuser_usec 5\n")
    device = machine.open()
    read(device, "cpu.usage")
    machine.write("sys/fs/cgroup/cpu.stat", "usage_usec 1400000\nuser_usec 5\n")
    machine.clock.advance(1.0)
    assert read(device, "cpu.usage")["cpu_utilization"].value == pytest.approx(0.8)


# content of /proc/stat
BAD_STAT = ["", "cpu0 a b c\n", "cpu0 1\n", "cpu7 1 2 3 4 5 6 7 8\n"]


@pytest.mark.parametrize("content", BAD_STAT)
def test_use_that_cannot_be_read_says_so(machine: Machine, content: str) -> None:
    machine.write("proc/stat", content)
    used = read(machine.open(), "cpu.usage")["cpu_utilization"]
    assert used.value is None
    assert "cannot be read" in used.reason


def test_counters_that_go_back_are_no_negative_use(machine: Machine) -> None:
    machine.ticks(user=50, idle=50)
    device = machine.open()
    read(device, "cpu.usage")
    machine.ticks(user=1, idle=1)
    machine.clock.advance(1.0)
    assert read(device, "cpu.usage")["cpu_utilization"].value is None


def test_memory_of_the_machine(machine: Machine) -> None:
    memory = read(machine.open(), "cpu.memory")
    assert memory["memory_used"].value == 600 * 1024
    assert memory["memory_free"].value == 16 * GIB - 600 * 1024


def test_memory_of_a_control_group_with_a_limit(machine: Machine) -> None:
    machine.write("sys/fs/cgroup/memory.max", str(2 * GIB))
    machine.write("sys/fs/cgroup/memory.current", str(GIB))
    machine.write("sys/fs/cgroup/memory.stat", f"anon 5\ninactive_file {GIB // 2}\n")
    memory = read(machine.open(), "cpu.memory")
    assert memory["memory_used"].value == GIB // 2
    assert memory["memory_free"].value == 2 * GIB - GIB // 2


def test_the_hottest_sensor_of_the_cpu_counts(machine: Machine) -> None:
    for chip, name, milli in ((0, "coretemp", 51000), (1, "k10temp", 63500), (2, "nvme", 90000)):
        machine.write(f"sys/class/hwmon/hwmon{chip}/name", f"{name}\n")
        machine.write(f"sys/class/hwmon/hwmon{chip}/temp1_input", f"{milli}\n")
    assert read(machine.open(), "cpu.sensors")["temperature"].value == 63.5


@pytest.mark.parametrize("content", ["", "hot", "999999"])
def test_a_sensor_that_talks_nonsense_is_none(machine: Machine, content: str) -> None:
    machine.write("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n")
    machine.write("sys/class/thermal/thermal_zone0/temp", content)
    temperature = read(machine.open(), "cpu.sensors")["temperature"]
    assert temperature.value is None
    assert "no sensor" in temperature.reason


def rapl(machine: Machine, microjoules: int | str) -> None:
    machine.write("sys/class/powercap/intel-rapl:0/name", "package-0\n")
    machine.write("sys/class/powercap/intel-rapl:0/energy_uj", f"{microjoules}\n")
    machine.write("sys/class/powercap/intel-rapl:0/max_energy_range_uj", "100000000\n")
    machine.write("sys/class/powercap/intel-rapl:0:0/name", "core\n")
    machine.write("sys/class/powercap/intel-rapl:0:0/energy_uj", "777\n")


def test_power_is_energy_over_time_also_where_the_counter_wraps(machine: Machine) -> None:
    rapl(machine, 90_000_000)
    device = machine.open()
    assert read(device, "cpu.rapl")["power"].value is None
    rapl(machine, 10_000_000)
    machine.clock.advance(2.0)
    found = read(device, "cpu.rapl")
    assert found["power"].value == pytest.approx(10.0)
    assert found["energy"].value == pytest.approx(20.0)


def test_energy_that_may_not_be_read_says_so(machine: Machine) -> None:
    rapl(machine, "")
    found = read(machine.open(), "cpu.rapl")
    assert found["power"].value is None
    assert "may not read" in found["power"].reason
