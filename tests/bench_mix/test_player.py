from __future__ import annotations

from typing import Any

from treadle.bench.mix.outcome import Sample
from treadle.bench.mix.player import joules_on, sample_of

PAGE = """# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION energy (mJ)
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION unknown
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a"} 5000.0
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b"} 7000.0
"""


def status() -> dict[str, Any]:
    def control(uuid: str, trouble: str) -> dict[str, Any]:
        return {
            "uuid": uuid,
            "trouble": trouble,
            "action": "give",
            "reason": "room to spare",
            "level": 0.55,
            "knobs": [{"name": "budget_seconds", "value": 5e-4}],
        }

    devices = [{"uuid": uuid, "readings": {"power": 300.0}} for uuid in ("GPU-a", "GPU-b")]
    return {
        "monitor": {"devices": devices},
        "jobs": {"control": [control("GPU-a", ""), control("GPU-b", "its page is gone")]},
    }


def test_joules_are_those_of_the_gpu_in_use() -> None:
    assert joules_on(PAGE, "GPU-b") == 7.0
    assert joules_on(PAGE, "GPU-c") is None
    assert joules_on("", None) is None


def test_a_sample_tells_of_the_gpu_in_use_and_its_controller() -> None:
    assert sample_of(status(), "GPU-a", 1.0) == Sample(
        at=1.0,
        level=0.55,
        action="give",
        reason="room to spare",
        knobs={"budget_seconds": 5e-4},
        power_watts=300.0,
    )
    assert sample_of(status(), "GPU-b", 1.0).reason == "its page is gone"


def test_without_a_gpu_a_sample_tells_nothing() -> None:
    assert sample_of(status(), None, 1.0) == Sample(at=1.0)
