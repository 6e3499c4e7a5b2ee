"""The page as Python sees it agrees with the library, and bad pages are refused with a reason."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from pathlib import Path

import pytest
from tests.turnstile.harness import Built, uuid_of

from treadle.turnstile import KNOBS, GateLibrary, Turnstile, TurnstileError, default_folder
from treadle.turnstile.page import ABI, PAGE_BYTES, Page, Record


def test_layout_is_that_of_the_library(built: Built) -> None:
    lines = GateLibrary(built.library).layout().splitlines()
    assert lines[0] == f"abi {ABI}"
    structures: dict[str, type[ctypes.Structure]] = {"header": Page, "record": Record}
    checked = 0
    for line in lines[1:]:
        kind, name, *numbers = line.split()
        if kind in structures:
            field = getattr(structures[kind], name)
            assert [field.offset, field.size] == [int(n) for n in numbers], line
        else:
            knob = KNOBS[name]
            assert [knob.index, knob.least, knob.most, knob.usual] == [int(n) for n in numbers]
        checked += 1
    assert checked > 50
    assert ctypes.sizeof(Page) == PAGE_BYTES


def test_a_page_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with Turnstile.open(folder, uuid_of()) as first, Turnstile.open(folder, uuid_of()) as second:
        first.set_knob("budget_ns", 77)
        assert second.snapshot().knobs["budget_ns"] == 77
        assert stat.S_IMODE(first.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_group_that_may_write_the_folder_may_write_its_pages(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with Turnstile.open(tmp_path, uuid_of()) as page:
        assert stat.S_IMODE(page.path.stat().st_mode) == 0o660


def test_a_fresh_page_has_the_usual_knobs_and_nobody(tmp_path: Path) -> None:
    with Turnstile.open(tmp_path, uuid_of()) as page:
        snapshot = page.snapshot()
    assert snapshot.members == ()
    assert snapshot.uuid == uuid_of()
    assert snapshot.knobs == {name: knob.usual for name, knob in KNOBS.items()}
    assert snapshot.closed_for == frozenset()


@pytest.mark.parametrize("name", list(KNOBS))
def test_knobs_keep_to_their_range(tmp_path: Path, name: str) -> None:
    knob = KNOBS[name]
    with Turnstile.open(tmp_path, uuid_of()) as page:
        for value in (knob.least, knob.most):
            page.set_knob(name, value)
            assert page.snapshot().knobs[name] == value
        for value in (knob.least - 1, knob.most + 1):
            with pytest.raises(TurnstileError, match=name):
                page.set_knob(name, value)
    with (
        Turnstile.open(tmp_path, uuid_of()) as again,
        pytest.raises(TurnstileError, match="no knob"),
    ):
        again.set_knob("haste", 1)


def test_knobs_outlive_whoever_set_them(tmp_path: Path) -> None:
    with Turnstile.open(tmp_path, uuid_of()) as page:
        page.set_knob("quantum_ns", 5_000_000)
    with Turnstile.open(tmp_path, uuid_of()) as page:
        assert page.snapshot().knobs["quantum_ns"] == 5_000_000


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: b"", "too short"),
        (lambda data: data[:100], "too short"),
        (lambda data: bytes(len(data)), "not a turnstile"),
        (lambda data: data[:8] + struct.pack("<I", ABI + 1) + data[12:], "version"),
        (lambda data: data[:8] + struct.pack("<I", 0) + data[12:], "version"),
        (lambda data: data[:12] + struct.pack("<I", 1) + data[16:], "sizes"),
    ],
)
def test_a_bad_page_is_refused_with_a_reason(
    built: Built, tmp_path: Path, damage: object, reason: str
) -> None:
    assert callable(damage)
    with Turnstile.open(tmp_path, uuid_of()) as page:
        path = page.path
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(TurnstileError, match=reason):
        Turnstile.open(tmp_path, uuid_of())
    with pytest.raises(TurnstileError, match=r"turnstile|version"):
        GateLibrary(built.library).join(tmp_path, uuid_of(), 0, "x")


def test_a_missing_page_is_an_error_where_none_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(TurnstileError, match="No such file"):
        Turnstile.open(tmp_path, uuid_of(), create=False)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a" * 64, ".hidden", "GPU 0"])
def test_names_that_no_gpu_has_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(TurnstileError, match="UUID"):
        Turnstile.open(tmp_path, name)


def test_a_folder_that_everyone_may_write_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(TurnstileError, match="everyone"):
        Turnstile.open(tmp_path, uuid_of())


def test_the_folder_comes_from_the_environment() -> None:
    assert default_folder({"TREADLE_TURNSTILE_DIR": "/x"}) == Path("/x")
    assert default_folder({"XDG_RUNTIME_DIR": "/run/u"}) == Path("/run/u/treadle/turnstile")
    assert default_folder({}) == Path(f"/dev/shm/treadle-{os.geteuid()}")


def test_a_closed_turnstile_says_so(tmp_path: Path) -> None:
    page = Turnstile.open(tmp_path, uuid_of())
    page.close()
    with pytest.raises(TurnstileError, match="closed"):
        page.set_knob("budget_ns", 1)
