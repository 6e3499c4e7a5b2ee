"""A disk that is full before, while and after a job runs."""

from __future__ import annotations

import json
from pathlib import Path

from tests.jobs.conftest import MakeDisk

from treadle.programs.attempt import Fate
from treadle.programs.supervisor.program import TRY_AGAIN

from .harness import Watched, until

LIMIT = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))"
"""Files cannot grow, which for who writes them is much the same as a full disk."""


async def test_what_the_disk_does_not_take_is_counted_and_the_end_is_kept(
    make_disk: MakeDisk,
) -> None:
    watched = Watched(make_disk("size=64k") / "1")
    ending = await watched.run("sh", "-c", "seq 100000; exit 3")
    kept = (watched.folder / "log").stat().st_size
    written = sum(len(str(n)) + 1 for n in range(1, 100001))
    assert ending.exit_code == 3
    assert ending.reason == f"{written - kept} bytes of its output were lost: the disk was full"


async def test_a_disk_that_has_room_again_is_written_to_again(make_disk: MakeDisk) -> None:
    disk = make_disk("size=64k")
    watched, gate = Watched(disk / "1"), disk / "gate"
    watched.start("sh", "-c", f"echo first; while [ ! -e {gate} ]; do sleep 0.01; done; echo last")
    await watched.has_written("first")
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    filler.unlink()
    gate.touch()
    assert (await watched.end()).exit_code == 0
    assert watched.output == "first\nlast\n"


async def test_an_end_fits_where_nothing_else_does(make_disk: MakeDisk) -> None:
    disk = make_disk("size=64k")
    watched = Watched(disk / "1")
    ending = await watched.run(
        "sh", "-c", f"cat /dev/zero > {disk}/filler; echo lost; exit 9", log_bytes=1 << 20
    )
    assert ending.exit_code == 9
    assert "bytes of its output were lost" in ending.reason
    assert len((watched.folder / "ended.json").read_bytes()) == 4096


async def test_files_that_cannot_grow_lose_output_and_nothing_else(watched: Watched) -> None:
    watched.prepare(watched.task("sh", "-c", "seq 10000; exit 3"))
    assert watched.run_program(LIMIT).returncode == 0
    ending = watched.attempt.ending()
    assert ending is not None
    assert ending.exit_code == 3
    assert ending.reason == "42894 bytes of its output were lost: the disk was full"
    assert (watched.folder / "log").stat().st_size == 6000


async def test_a_job_that_a_full_disk_keeps_from_beginning_is_not_lost(
    make_disk: MakeDisk,
) -> None:
    disk = make_disk("size=1m,nr_inodes=100")
    fillers: list[Path] = []
    watched = Watched(disk / "1")
    watched.prepare(watched.task("touch", f"{disk}/ran"))
    try:
        while True:
            fillers.append(disk / f"filler{len(fillers)}")
            fillers[-1].touch()
    except OSError:
        fillers.pop()
    for room in range(12):  # one more file can be made each time
        watched.prepare(watched.task("touch", f"{disk}/ran"))
        ended = watched.run_program()
        if ended.returncode == 0:
            break
        assert ended.returncode in (1, TRY_AGAIN), ended.stderr
        assert "No space left" in ended.stderr
        assert (watched.folder / "task.json").exists() == (ended.returncode != TRY_AGAIN)
        assert not (watched.folder / "begun").exists(), room
        assert not (watched.folder / "ended.json").exists(), room
        fillers.pop().unlink()
    else:
        raise AssertionError("it never began")
    assert watched.attempt.fate() is Fate.ENDED


async def test_who_follows_waits_until_the_disk_has_room(make_disk: MakeDisk) -> None:
    disk = make_disk("size=1m,nr_inodes=4")
    watched, filler = Watched(disk / "1"), disk / "filler"
    watched.folder.mkdir()
    filler.touch()
    watched.follow()
    await until((watched.folder / "lock").exists, "it has come that far, and no further")
    filler.unlink()
    assert (await watched.fate())[0] is Fate.NEVER_BEGUN


async def test_an_end_in_many_foreign_words_is_kept(watched: Watched) -> None:
    watched.start("sh", "-c", "sleep 1000")
    await watched.is_running()
    watched.attempt.order(do="end", reason="\U0001f4a5\x01" * 200)
    ending = await watched.end()
    assert ending.reason.startswith("\U0001f4a5\x01\U0001f4a5")
    assert len((watched.folder / "ended.json").read_bytes()) == 4096
    assert json.loads((watched.folder / "ended.json").read_bytes())["told"] is True
