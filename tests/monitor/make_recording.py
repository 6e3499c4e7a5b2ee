"""Records a simulated GPU under a square wave: ``python tests/monitor/make_recording.py``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.monitor.pages import WrittenPage  # noqa: E402

from treadle.clock import ManualClock  # noqa: E402
from treadle.devices.device import DeviceEvent  # noqa: E402
from treadle.devices.simulated import SimulatedGPU  # noqa: E402
from treadle.monitor import ring  # noqa: E402
from treadle.monitor.recording import Recorder  # noqa: E402
from treadle.monitor.ring import Reader, Writer  # noqa: E402
from treadle.monitor.sampler import Sampler, plan  # noqa: E402
from treadle.monitor.spending import CpuTime  # noqa: E402

FILE = ROOT / "tests" / "data" / "simulated.rec"
_SECONDS, _HALF_PERIOD, _TICK = 12, 2, 0.01
_GIB = 1 << 30


def _second(gpu: SimulatedGPU, page: WrittenPage, second: int) -> None:
    """What happens at the beginning of a second."""
    if second % _HALF_PERIOD == 0:
        on = second // _HALF_PERIOD % 2 == 1
        gpu.load(sm=0.95 * on, tensor=0.8 * on, dram=0.4 * on)
        if on:
            page.mark(0, 0)
        else:
            page.unmark(0, 0, _HALF_PERIOD * 1_000_000_000 if second else 0)
    if second == 1:
        gpu.start_process(4242, "python", memory_bytes=8 * _GIB)
    if second == 9:
        gpu.xid(31)
    if second == 11:
        gpu.end_process(4242)


def record(file: Path) -> None:
    """Play the wave and write down what was read."""
    clock, events = ManualClock(1000.0), list[DeviceEvent]()
    gpu = SimulatedGPU(clock, seed=1)
    directory, sources = plan([gpu], [])
    memory = ring.create()
    writer = Writer(memory, directory)
    with tempfile.TemporaryDirectory() as folder, Recorder(file) as recorder:
        pages = Path(folder) / "pages"
        page = WrittenPage(pages, gpu.info.uuid)
        page.seat(0, 0, pid=4242)
        sampler = Sampler(
            [gpu],
            sources,
            writer,
            folder=pages,
            clock=clock,
            on_event=events.append,
            # What it takes here says nothing, where time is moved by hand.
            cpu=CpuTime(thread=lambda: 0.0, process=lambda: 0.0),
        )
        writer.ready()
        reader = Reader(memory)
        due = clock.now()
        for second in range(_SECONDS):
            _second(gpu, page, second)
            for _ in range(round(1 / _TICK)):
                if clock.now() >= due:
                    due = sampler.step()
                sampler.gate.tick(round(clock.now() * 1e9))
                if page.page.marks[0]:
                    page.page.record[0].launches += 1
                clock.advance(_TICK)
            recorder.take(reader, events)
            events.clear()
        page.close()
    os.close(memory)


if __name__ == "__main__":
    FILE.unlink(missing_ok=True)
    record(FILE)
    print(f"{FILE}: {FILE.stat().st_size / 1024:.0f} KiB")
