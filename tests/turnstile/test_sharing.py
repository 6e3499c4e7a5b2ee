"""Equals take turns, lower classes keep a least share, gates linger, and gangs do not hang."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from tests.turnstile.harness import World, by_pid, eventually, uuid_of
from tests.turnstile.test_turnstile import marker


def test_two_equals_take_turns(world: World) -> None:
    programs = [world.start(), world.start()]
    with world.page() as page:
        page.set_knob("quantum_ns", 2_000_000)
        for program in programs:
            program.ask("launch 10 100")
            program.ask("start 100")

        def both_had(turns: int) -> bool:
            return all(by_pid(page, p).turns >= turns for p in programs)

        eventually(lambda: both_had(5), "a few turns each")
        before = [by_pid(page, p).turns for p in programs]
        eventually(lambda: both_had(100), "many turns each")
        after = [by_pid(page, p).turns for p in programs]
        for program in programs:
            program.ask("stop")
        first, second = (b - a for a, b in zip(before, after, strict=True))
        assert 0.5 < first / second < 2  # however unevenly a busy machine runs the two


def test_alone_a_program_needs_no_turns(world: World) -> None:
    program = world.start()
    with world.page() as page:
        program.ask("launch 2000 1")
        member = by_pid(page, program)
        assert (member.turns, member.waits) == (0, 0)


def test_a_turn_passes_when_its_holder_dies(world: World) -> None:
    holder, heir = world.start(), world.start()
    with world.page() as page:
        page.set_knob("quantum_ns", 10_000_000_000)
        page.set_knob("grace_ns", 1_000_000_000)
        heir.ask("launch 1 10")
        holder.ask("launch 1 10")
        holder.ask("start 1000")
        eventually(lambda: by_pid(page, holder).launches > 5, "the holder runs")
        heir.tell("launch 5 10")
        eventually(lambda: by_pid(page, heir).waiting, "the heir waits")
        holder.kill()
        assert heir.read() == "launched 5 result=0"


def test_a_turn_passes_when_its_holder_is_idle(world: World) -> None:
    holder, heir = world.start(), world.start()
    with world.page() as page:
        page.set_knob("quantum_ns", 10_000_000_000)
        heir.ask("launch 1 10")
        holder.ask("launch 100 10")
        assert heir.ask("launch 5 10") == "launched 5 result=0"


def test_turns_share_one_budget(world: World) -> None:
    programs = [world.start(), world.start()]
    with world.page() as page:
        page.set_knob("quantum_ns", 1_000_000)
        for program in programs:
            program.ask("launch 20 200")
        for program in programs:
            program.ask("start 200")
        eventually(lambda: all(by_pid(page, p).turns > 5 for p in programs), "turns")
        for program in programs:
            program.ask("stats")
        eventually(lambda: all(by_pid(page, p).turns > 50 for p in programs), "more turns")
        for program in programs:
            program.ask("stop")
            assert int(program.ask_fields("stats")["most_backlog_ns"]) < 2_000_000


def test_minimum_duty_lets_some_through(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask("launch 10 100")
    with world.page() as page:
        page.set_knob("duty_ppm", 100_000)
        critical.ask("mark")
        start = time.monotonic()
        assert program.ask("launch 20 100") == "launched 20 result=0"
        elapsed = time.monotonic() - start
        member = by_pid(page, program)
        assert member.duty_passes >= 19
        # 20 launches of 0.1 ms at a tenth of the time take at least most of 20 ms.
        assert elapsed > 0.010


def test_the_gate_lingers(world: World) -> None:
    critical = marker(world)
    program = world.start()
    program.ask("launch 1 10")
    with world.page() as page:
        page.set_knob("duty_ppm", 0)
        page.set_knob("linger_ns", 300_000_000)
        critical.ask("mark")
        start = time.monotonic()
        critical.ask("unmark")
        assert program.ask("launch 1 10") == "launched 1 result=0"
        assert time.monotonic() - start > 0.25
        assert by_pid(page, program).waited_seconds > 0.2


def peers(tmp_path: Path, rank: int) -> dict[str, str]:
    return {
        "STANDIN_PEERS": f"{tmp_path / 'peers'},{rank},2",
        "STANDIN_UUID": str(rank),
        "TREADLE_NAME": f"rank{rank}",
    }


@pytest.mark.parametrize("as_gang", [True, False])
def test_two_ranks_whose_collectives_wait_for_each_other_cannot_hang(
    world: World, tmp_path: Path, as_gang: bool
) -> None:
    gang = ",".join(str(world.folder / uuid_of(0, base)) for base in (0, 1))
    more = {"TREADLE_GANG": gang} if as_gang else {}
    ranks = [world.start(**peers(tmp_path, rank), **more) for rank in (0, 1)]
    markers = [
        marker(world, 0, "server", uuid_of(0, 0)),
        marker(world, 0, "server", uuid_of(0, 1)),
    ]
    chance = random.Random(5)
    with world.page(0, 0) as first, world.page(0, 1) as second:
        for page in (first, second):
            page.set_knob("duty_ppm", 0)
        for rank in ranks:
            rank.tell("steps 100 20")
        done = [False, False]
        rounds = 0
        while not all(done):
            critical = chance.choice(markers)
            critical.ask("mark")
            time.sleep(chance.random() * 0.004)
            critical.ask("unmark")
            done = [d or r.answered(0) for d, r in zip(done, ranks, strict=True)]
            rounds += 1
            assert rounds < 20_000
        assert [rank.read() for rank in ranks] == ["steps 100", "steps 100"]


def test_a_gang_stops_on_all_its_gpus(world: World, tmp_path: Path) -> None:
    gang = ",".join(str(world.folder / uuid_of(0, base)) for base in (0, 1))
    rank = world.start(STANDIN_UUID="0", TREADLE_GANG=gang)
    rank.ask("launch 1 10")
    critical = marker(world, 0, "server", uuid_of(0, 1))
    with world.page(0, 0) as page:
        page.set_knob("duty_ppm", 0)
        critical.ask("mark")
        rank.tell("launch 1 10")
        eventually(lambda: by_pid(page, rank).waiting, "waits for the other GPU")
        critical.ask("unmark")
        assert rank.read() == "launched 1 result=0"
        critical.ask("mark")
        rank.tell("launch 1 10")
        eventually(lambda: by_pid(page, rank).waiting, "waits for the other GPU")
        critical.kill()
        assert rank.read() == "launched 1 result=0"


def test_crossed_gangs_with_turns_cannot_hang(world: World, tmp_path: Path) -> None:
    """Two jobs on the same two GPUs, each rank of each with a turn that the other wants."""
    pages = [world.page(0, base) for base in (0, 1)]
    for page in pages:
        page.set_knob("quantum_ns", 1_000_000)
    ranks = []
    for job in ("a", "b"):
        folder = tmp_path / job
        folder.mkdir()
        ranks += [world.start(**peers(folder, rank)) for rank in (0, 1)]
    for rank in ranks:
        rank.tell("steps 100 20")
    for rank in ranks:
        assert rank.read() == "steps 100"
    for page in pages:
        page.close()


def test_one_process_on_two_gpus_has_a_seat_at_each(world: World) -> None:
    program = world.start(STANDIN_GPUS="2")
    critical = marker(world, 0, "server", uuid_of(1))
    with world.page(0) as first, world.page(1) as second:
        second.set_knob("duty_ppm", 0)
        program.ask("launch 3 10")
        program.ask("device 1")
        program.ask("launch 4 10")
        assert by_pid(first, program).launches == 3
        assert by_pid(second, program).launches == 4
        critical.ask("mark")
        program.ask("device 0")
        assert program.ask("launch 1 10") == "launched 1 result=0"
        program.ask("device 1")
        program.tell("launch 1 10")
        eventually(lambda: by_pid(second, program).waiting, "waits on the second GPU only")
        critical.ask("unmark")
        assert program.read() == "launched 1 result=0"
