"""What has to be so before a group can share a node, and what is said if it is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from treadle.errors import StartError
from treadle.node.group import find_group, make_entrance, share_turnstiles
from treadle.turnstile import Turnstile

root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to a group")
GROUP = 54_321


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that everybody may enter, as far up as tests have made any."""
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    return tmp_path


def rights(path: Path) -> tuple[int, int]:
    about = path.stat()
    return about.st_mode & 0o7777, about.st_gid


def test_a_group_is_named_or_numbered() -> None:
    assert find_group("root" if os.geteuid() == 0 else str(os.getegid())) == os.getegid()
    with pytest.raises(StartError, match="there is no group 'nobody-knows'"):
        find_group("nobody-knows")


def test_who_is_not_of_the_group_cannot_share_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StartError, match="this user is not in the group '54321'; join it, or run"):
        find_group(str(GROUP))


@root
def test_the_folder_of_the_socket_is_made_for_the_group_to_enter(place: Path) -> None:
    make_entrance(place / "run", GROUP)
    assert rights(place / "run") == (0o750, GROUP)
    make_entrance(place / "run", GROUP)


@root
@pytest.mark.parametrize(
    ("mode", "says"),
    [
        (0o700, "the group 54321 cannot enter .*/run; set TREADLE_SOCKET to a path"),
        (0o770, "others than this user and root may write .*/run, and could put another"),
        (0o757, "others than this user and root may write .*/run, and could put another"),
    ],
)
def test_a_folder_that_will_not_do_stays_as_it_is_and_is_said(
    place: Path, mode: int, says: str
) -> None:
    folder = place / "run"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(StartError, match=says):
        make_entrance(folder, GROUP)
    assert rights(folder) == (mode, 0)


@root
def test_a_folder_inside_one_that_is_shut_is_said(place: Path) -> None:
    (place / "shut").mkdir(mode=0o700)
    with pytest.raises(StartError, match=r"cannot enter .*/shut; set TREADLE_SOCKET"):
        make_entrance(place / "shut" / "run", GROUP)


@root
def test_a_folder_inside_one_that_is_anothers_is_said(place: Path) -> None:
    (place / "theirs").mkdir()
    os.chown(place / "theirs", 65_534, -1)
    with pytest.raises(StartError, match=r"others than this user and root may write .*/theirs,"):
        make_entrance(place / "theirs" / "run", GROUP)


@root
def test_turnstiles_that_were_this_users_alone_become_the_groups(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "t", tmp_path / "elsewhere"
    Turnstile.open(folder, "GPU-1").close()
    elsewhere.touch(mode=0o600)
    (folder / "link").symlink_to(elsewhere)
    share_turnstiles(folder, GROUP)
    assert rights(folder) == rights(folder / ".progress") == (0o3770, GROUP)
    assert rights(folder / "GPU-1") == (0o660, GROUP)
    assert rights(elsewhere) == (0o600, 0)
    Turnstile.open(folder, "GPU-2").close()
    assert rights(folder / "GPU-2") == (0o660, GROUP)
    share_turnstiles(folder, GROUP)


@root
def test_turnstiles_that_are_shared_already_become_safe(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    os.chown(folder, -1, GROUP)
    folder.chmod(0o2770)
    share_turnstiles(folder, GROUP)
    assert rights(folder) == rights(folder / ".progress") == (0o3770, GROUP)


@root
def test_turnstiles_of_others_are_refused(tmp_path: Path) -> None:
    def put(name: str, user: int, group: int, mode: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        os.chown(folder, user, group)
        folder.chmod(mode)
        return folder

    with pytest.raises(StartError, match=r"users is user 65534's"):
        share_turnstiles(put("users", 65_534, GROUP, 0o2770), GROUP)
    with pytest.raises(StartError, match="shared with others than the group 54321"):
        share_turnstiles(put("groups", 0, 54_320, 0o2770), GROUP)
    with pytest.raises(StartError, match="shared with others than the group 54321"):
        share_turnstiles(put("everyones", 0, GROUP, 0o1777), GROUP)
    (tmp_path / "link").symlink_to(put("target", 0, 0, 0o700))
    with pytest.raises(StartError, match="cannot share"):
        share_turnstiles(tmp_path / "link", GROUP)
    reports = put("reports", 0, GROUP, 0o2770) / ".progress"
    reports.mkdir()
    os.chown(reports, 65_534, GROUP)
    with pytest.raises(StartError, match=r"somebody else has made .*progress; remove it"):
        share_turnstiles(reports.parent, GROUP)
