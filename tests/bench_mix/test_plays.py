from __future__ import annotations

from pathlib import Path

import pytest

from treadle.bench.colocation.workloads import Scale
from treadle.bench.mix.load import Burst
from treadle.bench.mix.plays import FIXED, MODES, configuration, make_play, submission_words
from treadle.errors import ConfigError
from treadle.node.config import NodeConfig, load_config
from treadle.turnstile import KNOBS

ALL = [(scenario, mode) for scenario, modes in MODES.items() for mode in modes]


def configured(
    tmp_path: Path, scenario: str, mode: str, *, device: str = "cuda", cooperative: bool = False
) -> NodeConfig:
    play = make_play(scenario, mode, None, Scale.FULL)
    file = tmp_path / "treadle.toml"
    file.write_text(
        configuration(
            play,
            [8001 + number for number in range(len(play.services))],
            tmp_path,
            scale=Scale.FULL,
            device=device,
            seed=1,
            cooperative=cooperative,
            limit_seconds=300,
        )
    )
    return load_config(file, {})


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(("scenario", "mode"), ALL)
def test_a_node_takes_the_configuration_of_every_play(
    tmp_path: Path, scenario: str, mode: str, device: str
) -> None:
    config = configured(tmp_path, scenario, mode, device=device)
    assert [table.mode for table in config.gpu] == ["parallel" if mode == "parallel" else "turns"]
    for service in config.service:
        assert service.gpus == (0 if device == "cpu" else 1)
        assert (service.p99_seconds is None) == (mode in FIXED)
        assert bool(service.latency_from) == (mode not in FIXED)


def test_services_mark_their_work_where_that_is_wanted(tmp_path: Path) -> None:
    for wanted in (True, False):
        (service,) = configured(tmp_path, "control", "usual", cooperative=wanted).service
        assert ("--cooperative" in service.command) == wanted


def test_the_services_of_the_mix_take_three_fifths_of_the_gpu(tmp_path: Path) -> None:
    seconds = {"resnet": 1.0e-3, "encoder": 1.75e-3, "decoder": 9e-3}
    play = make_play("mix", "turns", None, Scale.FULL)
    assert sum(one.rate * seconds[one.model] for one in play.services) == pytest.approx(0.6)
    assert len(play.services) == 5
    assert len(play.trainers) == 2


def test_the_burst_comes_in_the_middle_and_lasts_a_sixth() -> None:
    assert make_play("burst", "usual", None, Scale.FULL).services[0].bursts == (Burst(60, 80, 5),)
    assert make_play("burst", "usual", 6, Scale.TINY).services[0].bursts == (Burst(3, 4, 5),)
    with pytest.raises(ConfigError, match="allowed: 6 and more"):
        make_play("burst", "usual", 5, Scale.TINY)


@pytest.mark.parametrize(("scenario", "mode"), [("burst", "parallel"), ("none", "usual")])
def test_a_mode_that_a_scenario_lacks_is_refused(scenario: str, mode: str) -> None:
    with pytest.raises(ConfigError, match="allowed: control: service-alone"):
        make_play(scenario, mode, None, Scale.FULL)


def test_fixed_knobs_are_knobs_of_the_page_and_within_their_ranges() -> None:
    for knobs in FIXED.values():
        for name, value in knobs.items():
            assert KNOBS[name].least <= value <= KNOBS[name].most


def test_a_trainer_is_submitted_with_its_memory_on_a_gpu_only() -> None:
    on_gpu, on_cpu = (
        submission_words("trainer", Path("/out"), scale=Scale.TINY, device=device)
        for device in ("cuda", "cpu")
    )
    assert on_gpu[on_gpu.index("--memory") + 1] == "53248MiB"
    assert "--memory" not in on_cpu
