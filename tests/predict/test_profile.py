"""Profiles as files: what is written is read, and what is no profile says why."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from treadle.predict.profile import (
    FORMAT,
    Point,
    Profile,
    ProfileError,
    Subject,
    read_profile,
    write_profile,
)

SUBJECT = Subject(model="m", source="a:b", device="H", dtype="float16")
PROFILE = Profile(
    subject=SUBJECT,
    date="2026-01-02T03:04:05+00:00",
    driver="580.1/13.0",
    versions={"torch": "2.9"},
    inputs={"x": (1, 16)},
    points=(
        Point.of_runs(1, 1.0, [0.2, 0.1, 0.3], "device"),
        Point.of_runs(8, 1.0, [0.4], "device"),
        Point.of_runs(1, 0.25, [0.5, 0.7], "device"),
    ),
    left_out=("16 rows: memory",),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "m.json"
    for _ in range(2):
        write_profile(PROFILE, path)
        assert read_profile(path) == PROFILE
    assert list(path.parent.iterdir()) == [path]


def test_the_figures_of_many_runs() -> None:
    point = Point.of_runs(4, 1.0, [float(n) for n in range(100, 0, -1)], "wall")
    assert (point.median_seconds, point.p95_seconds, point.runs) == (50.5, 95.0, 100)
    assert point.rows_per_second == 4 / 50.5


def test_seconds_by_size_of_one_share() -> None:
    assert PROFILE.seconds() == {1: 0.2, 8: 0.4}
    assert PROFILE.seconds(0.25) == {1: 0.6}
    assert PROFILE.seconds(0.5) == {}
    assert PROFILE.shares == [0.25, 1.0]


DAMAGED = {
    "empty": (b"", "damaged"),
    "cut": (msgspec.json.encode(PROFILE)[:-20], "damaged"),
    "binary": (bytes(range(256)), "damaged"),
    "no object": (b"[1]", "damaged"),
    "no format": (b"{}", "damaged"),
    "older": (msgspec.json.encode({"format": FORMAT - 1}), "measure it anew"),
    "newer": (msgspec.json.encode({"format": FORMAT + 1, "else": 1}), "measure it anew"),
    "no points": (msgspec.json.encode(msgspec.structs.replace(PROFILE, points=())), "no figures"),
    "negative": (msgspec.json.encode(PROFILE).replace(b":0.2", b":-0.2"), "damaged"),
    "large": (b" " * (1 << 21), "larger"),
}


@pytest.mark.parametrize(("data", "said"), DAMAGED.values(), ids=DAMAGED)
def test_what_is_no_profile_says_why(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(data)
    with pytest.raises(ProfileError, match=said) as caught:
        read_profile(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ProfileError, match=str(path)):
            read_profile(path)


def test_a_file_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ProfileError, match="file"):
        write_profile(PROFILE, tmp_path / "file" / "m.json")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("model", "n", "another model (m; here it is n)"),
        ("source", "a:c", "another version of the model's file or factory (a:b"),
        ("device", "A", "another device (H; here it is A)"),
        ("dtype", "", "another dtype (float16; here it is none)"),
        ("threads", 2, "another number of threads (0; here it is 2)"),
    ],
)
def test_in_what_it_is_of_something_else(key: str, value: object, said: str) -> None:
    assert PROFILE.differences(SUBJECT) == []
    (found,) = PROFILE.differences(msgspec.structs.replace(SUBJECT, **{key: value}))
    assert said in found
