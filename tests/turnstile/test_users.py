"""Users of one group share a turnstile; others cannot touch it, and are told so."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.turnstile.harness import Login, Program, World, by_pid, eventually, uuid_of

from treadle.cli.turnstile import run as show
from treadle.errors import TreadleError
from treadle.turnstile import Turnstile, TurnstileError
from treadle.turnstile.folder import check_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be several users")

GROUP = 54_321
ALICE = Login(user=65_534, group=65_534, groups=(GROUP,))
BOB = Login(user=65_533, group=65_533, groups=(GROUP,))
EVE = Login(user=65_532, group=65_532)


@pytest.fixture
def shared(world: World) -> Iterator[World]:
    """The same where other users reach it, with a folder of the group's."""
    home = Path(tempfile.mkdtemp(prefix="treadle-users-"))
    home.chmod(0o755)
    bin_folder, folder = home / "bin", home / "turnstile"
    bin_folder.mkdir(mode=0o755)
    for file in (world.built.library, world.built.program, world.built.folder / "libcuda.so.1"):
        shutil.copy(file, bin_folder)
    folder.mkdir()
    os.chown(folder, 0, GROUP)
    folder.chmod(0o770)
    built = replace(
        world.built,
        folder=bin_folder,
        library=bin_folder / world.built.library.name,
        program=bin_folder / world.built.program.name,
    )
    shared = World(built=built, folder=folder, programs=world.programs)
    try:
        yield shared
    finally:
        for program in shared.programs:
            with program:
                pass
        shutil.rmtree(home)


def start(world: World, login: Login, class_: str = "background") -> Program:
    environment = world.environment(TREADLE_CLASS=class_)
    program = Program([str(world.built.program), "dlsym"], environment, login)
    world.programs.append(program)
    assert program.read().startswith("ready")
    return program


@contextmanager
def acting_as(login: Login) -> Iterator[None]:
    """For a while, this process may do what that user may."""
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(login.groups)
    os.setegid(login.group)
    os.seteuid(login.user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


@pytest.mark.parametrize("made_by", ["the gate", "a control loop"])
def test_users_of_the_group_wait_for_each_other(shared: World, made_by: str) -> None:
    if made_by == "a control loop":
        with acting_as(BOB):
            shared.page().close()
    server, trainer = start(shared, ALICE, "critical"), start(shared, BOB)
    server.ask("launch 1 10")
    trainer.ask("launch 1 10")
    with shared.page() as page:
        page.set_knob("duty_ppm", 0)
        assert {m.pid for m in page.snapshot().members} == {server.pid, trainer.pid}
        server.ask("launch 1 60000000")  # a minute
        trainer.tell("launch 1 10")
        eventually(lambda: by_pid(page, trainer).waiting, "waits for the other user")
        server.kill()
        assert trainer.read() == "launched 1 result=0"
        assert [m.pid for m in page.snapshot().members] == [trainer.pid]


def test_a_user_of_the_group_may_turn_the_knobs(shared: World) -> None:
    start(shared, ALICE).ask("launch 1 10")
    with acting_as(BOB), Turnstile.open(shared.folder, uuid_of(), create=False) as page:
        page.set_knob("linger_ns", 5)
        assert page.snapshot().knobs["linger_ns"] == 5


@pytest.mark.parametrize("mode", [0o770, 0o775])
def test_a_user_outside_the_group_takes_no_seat_and_is_told(shared: World, mode: int) -> None:
    shared.folder.chmod(mode)
    start(shared, ALICE).ask("launch 1 10")
    before = (shared.folder / uuid_of()).read_bytes()
    stranger = start(shared, EVE)
    assert stranger.ask("launch 5 10") == "launched 5 result=0"
    assert (shared.folder / uuid_of()).read_bytes() == before
    code, errors = stranger.end()
    assert code == 0
    assert errors.count("treadle:") == 1
    assert f"{shared.folder / uuid_of()} cannot be used (Permission denied)" in errors


@pytest.mark.parametrize("mode", [0o770, 0o775])
def test_a_user_outside_the_group_cannot_open_the_page(
    shared: World,
    mode: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TREADLE_TURNSTILE_DIR", str(shared.folder))
    shared.folder.chmod(mode)
    start(shared, ALICE).ask("launch 1 10")
    path = shared.folder / uuid_of()
    with acting_as(EVE):
        with pytest.raises(TurnstileError, match=f"{path}: Permission denied"):
            shared.page()
        with pytest.raises(TreadleError) as refused:
            show(watch=False, as_json=True, knobs=[])
    assert "Permission denied" in str(refused.value) + capsys.readouterr().err


def test_a_user_outside_the_group_cannot_make_a_page(shared: World) -> None:
    with acting_as(EVE), pytest.raises(TurnstileError, match="Permission denied"):
        shared.page()
    stranger = start(shared, EVE)
    assert stranger.ask("launch 5 10") == "launched 5 result=0"
    assert "Permission denied" in stranger.end()[1]
    assert list(shared.folder.iterdir()) == []


def test_a_folder_that_somebody_else_put_in_place_is_refused(shared: World) -> None:
    os.chown(shared.folder, EVE.user, EVE.group)
    member = replace(ALICE, groups=(EVE.group,))
    for mode, login in ((0o755, ALICE), (0o775, ALICE), (0o755, member)):
        shared.folder.chmod(mode)
        with acting_as(login), pytest.raises(TurnstileError, match=f"user {EVE.user}'s alone"):
            check_folder(shared.folder)
    for mode, login in ((0o755, EVE), (0o775, member)):
        shared.folder.chmod(mode)
        with acting_as(login):
            check_folder(shared.folder)


def test_a_folder_out_of_reach_is_said(shared: World) -> None:
    shared.folder.parent.chmod(0o700)
    with acting_as(EVE), pytest.raises(TurnstileError, match="Permission denied"):
        shared.page()
