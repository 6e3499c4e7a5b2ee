"""Monitors over fake devices, which end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.monitor.fakes import FOLDER
from tests.monitor.waiting import eventually

from treadle.monitor import Limits, Monitor, MonitorSnapshot

ROOT = Path(__file__).parent.parent.parent
StartMonitor = Callable[..., Monitor]


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of orders to the fake devices, here and in helpers."""
    folder = tmp_path / "orders"
    folder.mkdir()
    monkeypatch.setenv(FOLDER, str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    return folder


@pytest.fixture
def start_monitor(orders: Path, tmp_path: Path) -> Iterator[StartMonitor]:
    """Starts monitors that hesitate little, but do not take a slow machine for one that hangs."""
    monitors: list[Monitor] = []

    def start(devices: str = "tests.monitor.fakes:two", **limits: float) -> Monitor:
        quick = {"hang_seconds": 20.0, "look_seconds": 0.02, "first_backoff_seconds": 0.01}
        monitor = Monitor(
            devices,
            folder=tmp_path / "pages",
            limits=Limits(**{**quick, **limits}),  # type: ignore[arg-type]
        )
        monitors.append(monitor)
        monitor.start()
        return monitor

    yield start
    for monitor in monitors:
        monitor.close()


def has_read(monitor: Monitor, metric: str = "power") -> MonitorSnapshot:
    """The first snapshot in which every device has a value of a metric."""

    def look() -> MonitorSnapshot | None:
        snapshot = monitor.snapshot()
        known = [device.value(metric) is not None for device in snapshot.devices]
        return snapshot if known and all(known) else None

    return eventually(look, f"a value of {metric} from every device")
