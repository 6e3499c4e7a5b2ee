"""The vocabulary."""

from __future__ import annotations

import dataclasses

import pytest

from treadle.types import Priority, TensorSpec


def test_a_smaller_number_is_more_urgent() -> None:
    assert list(Priority) == [0, 1, 2]
    assert Priority.CRITICAL < Priority.NORMAL < Priority.BACKGROUND


def test_a_priority_is_written_in_lower_case_and_read_back() -> None:
    assert [p.label for p in Priority] == ["critical", "normal", "background"]
    assert [Priority.parse(p.label) for p in Priority] == list(Priority)


@pytest.mark.parametrize("text", ["critical", "CRITICAL", "Critical", "cRiTiCaL"])
def test_a_priority_is_read_in_any_case(text: str) -> None:
    assert Priority.parse(text) is Priority.CRITICAL


@pytest.mark.parametrize("text", ["", "urgent", "0", " critical", "critical ", "label", "parse"])
def test_any_other_text_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="unknown priority") as caught:
        Priority.parse(text)
    assert repr(text) in str(caught.value)
    assert "allowed: critical, normal, background" in str(caught.value)


def test_a_spec_cannot_be_changed() -> None:
    spec = TensorSpec("x", "FP32", (-1, 4))
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "y"  # type: ignore[misc]
