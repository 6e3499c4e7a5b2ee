"""One owner for each knob, a range, and no change too small to matter."""

from __future__ import annotations

import itertools
import math

import pytest

from treadle.schedule.control import (
    Controller,
    Knob,
    KnobError,
    Knobs,
    page_values,
    turnstile_knobs,
)
from treadle.schedule.control.levels import settings_at, stopped
from treadle.turnstile.page import KNOBS


def batch_size(owner: str = "the batcher", usual: float = 8) -> Knob:
    return Knob(
        name="max_batch",
        unit="requests",
        least=1,
        most=64,
        usual=usual,
        help="requests that run together",
        owner=owner,
        resolution=2,
    )


def test_a_knob_has_one_owner_and_the_error_names_both() -> None:
    knobs = Knobs()
    knobs.register(batch_size("the batcher"))
    with pytest.raises(KnobError, match=r"max_batch.*the batcher.*the tuner"):
        knobs.register(batch_size("the tuner"))


def test_two_controllers_cannot_turn_the_knobs_of_one_gpu() -> None:
    knobs = Knobs()
    Controller("GPU-0", knobs)
    with pytest.raises(KnobError, match=r"the controller of GPU-0.*the controller of GPU-1"):
        Controller("GPU-1", knobs)


def test_of_several_knobs_all_are_registered_or_none() -> None:
    knobs = Knobs()
    knobs.register(batch_size())
    with pytest.raises(KnobError):
        knobs.register(*turnstile_knobs("a controller"), batch_size("another"))
    assert [knob.name for knob in knobs] == ["max_batch"]


def test_an_owner_that_ends_leaves_its_knobs_to_others() -> None:
    knobs = Knobs()
    knobs.register(batch_size("the batcher"))
    knobs.release("the batcher")
    knobs.register(batch_size("the tuner"))
    assert knobs["max_batch"].owner == "the tuner"


def test_a_usual_value_must_be_within_the_range() -> None:
    with pytest.raises(KnobError, match="1 to 64"):
        Knobs().register(batch_size(usual=65))


@pytest.mark.parametrize(("wanted", "set_to"), [(0, 1), (1000, 64), (math.inf, 64), (12.5, 12.5)])
def test_a_value_is_clipped_to_the_range(wanted: float, set_to: float) -> None:
    knobs = Knobs()
    knobs.register(batch_size())
    assert knobs.clip("max_batch", wanted) == set_to


def test_no_number_and_no_knob_are_errors() -> None:
    knobs = Knobs()
    knobs.register(batch_size())
    with pytest.raises(KnobError, match="no number"):
        knobs.clip("max_batch", math.nan)
    with pytest.raises(KnobError, match=r"'quota'; there are max_batch"):
        knobs.clip("quota", 1)


def test_a_change_below_the_resolution_is_not_written() -> None:
    knobs = Knobs()
    knobs.register(batch_size())
    assert knobs.turned({"max_batch": 8}, {"max_batch": 9.9}) == {"max_batch": 8}
    assert knobs.turned({"max_batch": 8}, {"max_batch": 10}) == {"max_batch": 10}
    assert knobs.turned({}, {"max_batch": 1}) == {"max_batch": 1}


@pytest.mark.parametrize("level", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_every_level_is_within_what_the_page_takes(level: float) -> None:
    for settings in (settings_at(level, 0.01, equals_matter=True), stopped()):
        for name, value in page_values(settings).items():
            assert KNOBS[name].least <= value <= KNOBS[name].most, name


def test_the_usual_settings_are_those_of_a_new_page() -> None:
    usual = page_values(settings_at(0.5, 0.01))
    assert usual == {name: KNOBS[name].usual for name in usual}
    assert usual == page_values({knob.name: knob.usual for knob in turnstile_knobs("me")})


def test_a_higher_level_is_never_less_generous() -> None:
    levels = [settings_at(n / 50, 0.02) for n in range(51)]
    for lower, higher in itertools.pairwise(levels):
        assert higher["budget_seconds"] > lower["budget_seconds"]
        assert higher["linger_seconds"] <= lower["linger_seconds"]
        assert higher["duty_fraction"] >= lower["duty_fraction"] >= 0.02
