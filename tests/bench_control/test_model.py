"""The simulated GPU does what the gate would."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from treadle.bench.control.load import SITUATIONS
from treadle.bench.control.model import KERNELS, Gpu, Machine, Service, kernel_lengths
from treadle.schedule.control.levels import settings_at

USUAL = settings_at(0.5, 0.01)
SERVICE = Service(part_seconds=1e-3)


def run(
    settings: Mapping[str, float] = USUAL,
    *,
    rate: float = 100,
    seconds: float = 20,
    training: bool = True,
    service: Service = SERVICE,
) -> tuple[Gpu, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    gpu = Gpu(Machine(), service, settings, seed=3, training=training)
    arrivals = np.cumsum(np.random.default_rng(4).exponential(1 / rate, int(rate * seconds)))
    latencies = [gpu.answer(float(at), lambda now: None) - at for at in arrivals]
    gpu.finish(seconds)
    return gpu, np.array(latencies)


def test_alone_a_request_takes_its_parts_and_its_pause() -> None:
    _, latencies = run(training=False, rate=1)
    assert float(np.median(latencies)) == pytest.approx(2.2e-3, rel=0.1)


def test_beside_training_it_takes_longer_and_the_rest_of_the_time_is_trained() -> None:
    _, alone = run(training=False)
    gpu, beside = run()
    assert np.median(beside) > np.median(alone)
    assert 0.7 < gpu.trained_seconds / 20 < 0.8


@pytest.mark.parametrize("knob", ["budget_seconds", "linger_seconds"])
def test_a_more_generous_knob_costs_the_server_and_feeds_the_training(knob: str) -> None:
    generous = {"budget_seconds": 2e-3, "linger_seconds": 0.0}[knob]
    protective = {"budget_seconds": 1e-4, "linger_seconds": 1e-3}[knob]
    little, fast = run({**USUAL, knob: protective})
    much, slow = run({**USUAL, knob: generous})
    assert np.quantile(slow, 0.9) > np.quantile(fast, 0.9)
    assert much.trained_seconds > little.trained_seconds


def test_minimum_duty_feeds_the_training_though_the_server_never_rests() -> None:
    for duty in (0.0, 0.05, 0.2):
        gpu, _ = run({**USUAL, "duty_fraction": duty, "linger_seconds": 1.0}, rate=450)
        # Beside that it has what is let in before the first request, and in flight.
        assert gpu.trained_seconds / gpu.idle_from == pytest.approx(duty, abs=0.02)
        assert (gpu.duty_passes > 0) == (duty > 0)


def test_kernels_have_the_lengths_that_are_stated() -> None:
    lengths = kernel_lengths(np.random.default_rng(5), 200_000)
    for low, high, share in KERNELS:
        chosen = lengths[(lengths >= low) & (lengths < high)]
        assert chosen.sum() / lengths.sum() == pytest.approx(share, abs=0.02)


def test_a_burst_brings_so_many_more() -> None:
    situation = SITUATIONS["burst"]
    assert situation.burst is not None
    start, end = situation.burst
    arrivals = situation.arrivals(1)
    assert (np.diff(arrivals) >= 0).all()
    within = ((arrivals > start) & (arrivals < end)).sum() / (end - start)
    before = (arrivals < start).sum() / start
    assert within / before == pytest.approx(5, rel=0.1)
