"""Which profile is a model's, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from treadle.errors import ModelLoadError
from treadle.predict.profile import Point, Profile, Subject, write_profile
from treadle.serve.config import ModelConfig
from treadle.serve.profiles import KnownLatency, find_latency, subject_of, usual_path

SUBJECT = Subject(model="m", source="a:b", device="H")


def config(**changes: Any) -> ModelConfig:
    return ModelConfig(**{"name": "m", "factory": "a:b", "device": "cuda", **changes})


def profile(subject: Subject = SUBJECT, share: float = 1.0) -> Profile:
    points = tuple(Point.of_runs(rows, share, [0.1 * rows], "wall") for rows in (1, 2))
    return Profile(subject=subject, date="2026-01-02", points=points)


def find(folder: Path, model: ModelConfig) -> KnownLatency:
    return find_latency(model, folder, folder / "state", SUBJECT)


def test_without_a_profile_nothing_is_known_and_nothing_said(tmp_path: Path) -> None:
    assert find(tmp_path, config()) == KnownLatency()


def test_the_one_in_the_state_folder_is_found_by_itself(tmp_path: Path) -> None:
    path = usual_path(SUBJECT, tmp_path / "state")
    write_profile(profile(), path)
    found = find(tmp_path, config())
    assert found == KnownLatency(seconds={1: 0.1, 2: 0.2}, file=path)


def test_each_subject_has_a_path_of_its_own(tmp_path: Path) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"model": "n"},
        {"source": "a:c"},
        {"device": "A"},
        {"dtype": "float16"},
        {"threads": 2},
    ]
    paths = {usual_path(replace(SUBJECT, **change), tmp_path) for change in changes}
    assert len(paths) == len(changes)


def test_a_named_one_lies_beside_the_configuration(tmp_path: Path) -> None:
    write_profile(profile(), tmp_path / "p.json")
    found = find(tmp_path, config(profile="p.json", p99_seconds=0.1))
    assert (found.file, found.notes) == (tmp_path / "p.json", ())


@pytest.mark.parametrize("named", [True, False])
def test_a_damaged_one_is_not_used_and_says_why(tmp_path: Path, named: bool) -> None:
    path = tmp_path / "p.json" if named else usual_path(SUBJECT, tmp_path / "state")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"format": 0}')
    found = find(tmp_path, config(profile="p.json" if named else None))
    assert (found.seconds, found.file) == ({}, None)
    assert "not used" in found.notes[0]
    assert str(path) in found.notes[0]


def test_a_named_one_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "No such file" in find(tmp_path, config(profile="p.json")).notes[0]


def test_one_of_another_device_or_file_is_used_with_a_warning(tmp_path: Path) -> None:
    write_profile(profile(replace(SUBJECT, device="A", source="a:c")), tmp_path / "p.json")
    found = find(tmp_path, config(profile="p.json", p99_seconds=0.01))
    assert found.seconds == {1: 0.1, 2: 0.2}
    (note,) = found.notes  # of the objective it can say nothing
    assert "another device (A; here it is H)" in note
    assert "another version of the model's file" in note


def test_an_objective_that_can_never_be_met_is_said(tmp_path: Path) -> None:
    write_profile(profile(), tmp_path / "p.json")
    (note,) = find(tmp_path, config(profile="p.json", p99_seconds=0.05)).notes
    assert note.startswith("p99_seconds = 0.05 can never be met")
    assert "0.1 s on H" in note


def test_figures_are_those_of_the_models_share_of_sms(tmp_path: Path) -> None:
    write_profile(profile(share=0.5), tmp_path / "p.json")
    assert find(tmp_path, config(profile="p.json", sm_share=0.5)).seconds == {1: 0.1, 2: 0.2}
    (note,) = find(tmp_path, config(profile="p.json")).notes
    assert "no figures for sm_share = 1, only for 0.5" in note


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"one")
    model = config(factory=None, onnx="m.onnx", device="cpu")
    first = subject_of(model, tmp_path, "C", 2)
    assert first.source.startswith("sha256:")
    assert first.threads == 2
    (tmp_path / "m.onnx").write_bytes(b"two")
    assert subject_of(model, tmp_path, "C", 2) != first
    assert subject_of(config(), tmp_path, "H", 2) == SUBJECT
    (tmp_path / "m.onnx").unlink()
    with pytest.raises(ModelLoadError, match=r"m\.onnx"):
        subject_of(model, tmp_path, "C", 2)
