"""The memory limit: it binds exactly, and a program sees its slot's size."""

from __future__ import annotations

import pytest
from tests.turnstile.harness import Program, World, by_pid

MIB = 1 << 20
GIB = 1 << 30
KINDS = ("plain", "managed", "pitch", "async", "pool", "create", "array", "mipmap")


def limited(limit_bytes: int, context_bytes: int = 0, **more: str) -> dict[str, str]:
    return {
        "TREADLE_MEMORY_BYTES": str(limit_bytes),
        "TREADLE_CONTEXT_BYTES": str(context_bytes),
        **more,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_allocation_is_bound(world: World, kind: str) -> None:
    program = world.start(**limited(64 * MIB))
    assert program.ask_fields(f"alloc {kind} {32 * MIB}") == {"result": "0", "number": "0"}
    assert program.ask_fields(f"alloc {kind} {33 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc {kind} {32 * MIB}")["result"] == "0"
    assert program.ask_fields(f"alloc {kind} 1")["result"] == "2" or kind in (
        "pitch",
        "array",
        "mipmap",
    )
    assert program.ask("free 0") == "free result=0"
    assert program.ask_fields(f"alloc {kind} {32 * MIB}")["result"] == "0"


def test_every_level_of_an_array_counts(world: World) -> None:
    program = world.start(**limited(64 * MIB))
    assert program.ask_fields(f"alloc levels {33 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc levels {32 * MIB}")["result"] == "0"


def test_the_context_is_charged(world: World) -> None:
    program = world.start(**limited(100 * MIB, 60 * MIB))
    assert program.ask_fields(f"alloc plain {41 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc plain {40 * MIB}")["result"] == "0"


def test_a_program_sees_its_slot(world: World) -> None:
    program = world.start(**limited(10 * GIB, 1 * GIB))
    program.ask(f"alloc plain {2 * GIB}")
    assert program.ask_fields("info") == {
        "free": str(7 * GIB),
        "total": str(10 * GIB),
        "device": str(10 * GIB),
    }
    assert program.ask_fields("nvml") == {
        "total": str(10 * GIB),
        "free": str(7 * GIB),
        "used": str(3 * GIB),
        "total2": str(10 * GIB),
        "free2": str(7 * GIB),
        "far": str(80 * GIB),
    }


def test_without_a_limit_a_program_sees_the_gpu(world: World) -> None:
    program = world.start()
    assert program.ask_fields("info")["total"] == str(80 * GIB)
    assert program.ask_fields("nvml")["total"] == str(80 * GIB)


def test_a_slot_larger_than_the_gpu_shows_the_gpu(world: World) -> None:
    program = world.start(**limited(200 * GIB))
    assert program.ask_fields("info")["total"] == str(80 * GIB)


@pytest.mark.parametrize("failing", ["0", "7"])
def test_the_account_is_exact_under_eight_threads(world: World, failing: str) -> None:
    limit = 160 * MIB
    program = world.start(**limited(limit, STANDIN_FAIL_ALLOC=failing))
    program.ask("launch 1 1")
    answer = program.ask_fields("churn 8 4000")
    assert answer["wrong"] == "0"
    assert int(answer["refused"]) > 0
    assert answer["now"] == "0"
    assert int(answer["peak"]) <= limit
    with world.page() as page:
        member = by_pid(page, program)
        assert member.memory_used_bytes == 0
        assert member.memory_limit_bytes == limit
        assert member.memory_failures > 0


def test_the_page_shows_what_is_used(world: World) -> None:
    program = world.start(**limited(10 * GIB, 100 * MIB))
    program.ask("launch 1 1")
    with world.page() as page:
        assert by_pid(page, program).memory_used_bytes == 100 * MIB
        program.ask(f"alloc plain {5 * MIB}")  # in pieces of 2 MiB
        program.ask("alloc plain 1000")  # in pieces of 512 bytes
        assert by_pid(page, program).memory_used_bytes == 106 * MIB + 1024


def test_a_handle_counts_until_its_last_map_and_reference_are_gone(world: World) -> None:
    program = world.start(**limited(64 * MIB))
    program.ask("launch 1 1")
    with world.page() as page:

        def used() -> int:
            return by_pid(page, program).memory_used_bytes // MIB

        program.ask(f"alloc create {32 * MIB}")
        address = program.ask("address 0").split()[1]
        assert program.ask("map 0") == "map result=0"
        assert program.ask("retain 0") == "retain result=0"
        program.ask("free 0")
        assert used() == 32
        assert program.ask(f"unmap {address}") == "unmap result=0"
        assert used() == 32  # the retained reference


def test_room_is_waited_for_within_a_bound(world: World) -> None:
    program = world.start(**limited(64 * MIB, TREADLE_MEMORY_WAIT_MS="50"))
    program.ask(f"alloc plain {40 * MIB}")
    assert program.ask_fields(f"alloc plain {40 * MIB}")["result"] == "2"


def test_the_limit_binds_without_a_turnstile(world: World) -> None:
    program = world.start(**limited(64 * MIB), TREADLE_TURNSTILE="")
    assert program.ask_fields(f"alloc plain {65 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc plain {64 * MIB}")["result"] == "0"


# ---- stream-ordered pools: they grow by 32 MiB, and keep what is freed ----


def used_mib(world: World, program: Program, device: int = 0) -> int:
    with world.page(device) as page:
        return by_pid(page, program).memory_used_bytes // MIB


@pytest.mark.parametrize("kind", ["async", "pool"])
def test_what_a_pool_keeps_is_charged_until_it_is_given_back(world: World, kind: str) -> None:
    program = world.start(**limited(256 * MIB))
    program.ask("launch 1 1")
    program.ask(f"alloc {kind} {40 * MIB}")
    assert used_mib(world, program) == 64
    program.ask("free 0")
    assert used_mib(world, program) == 64
    assert program.ask("sync") == "sync result=0"
    assert used_mib(world, program) == 0


def test_a_release_threshold_keeps_memory_charged_after_a_wait(world: World) -> None:
    program = world.start(**limited(256 * MIB))
    program.ask("launch 1 1")
    program.ask(f"threshold {GIB}")
    program.ask(f"alloc async {40 * MIB}")
    program.ask("free 0")
    program.ask("sync")
    assert used_mib(world, program) == 64
    assert program.ask(f"trim {32 * MIB}") == "trim result=0"
    assert used_mib(world, program) == 32


@pytest.mark.parametrize("kind", ["plain", "create", "async"])
def test_pools_are_trimmed_before_anything_is_refused(world: World, kind: str) -> None:
    program = world.start(**limited(128 * MIB))
    program.ask(f"threshold {GIB}")
    program.ask("newpool 0")
    program.ask(f"threshold {GIB}")
    program.ask(f"alloc pool {96 * MIB}")
    program.ask("free 0")
    assert program.ask_fields(f"alloc {kind} {64 * MIB}")["result"] == "0"
    answer = program.ask_fields("books")
    assert int(answer["peak"]) <= 128 * MIB
    assert program.ask_fields(f"alloc {kind} {65 * MIB}")["result"] == "2"
    assert int(program.ask_fields("books")["now"]) == 64 * MIB


def test_what_a_pool_keeps_is_used_again_without_trimming_it(world: World) -> None:
    program = world.start(**limited(128 * MIB))
    program.ask(f"threshold {GIB}")
    for _ in range(5):
        assert program.ask_fields(f"alloc async {100 * MIB}")["result"] == "0"
        program.ask("free 0")
    assert program.ask_fields("books") == {
        "now": str(128 * MIB),
        "peak": str(128 * MIB),
        "trims": "0",
    }


def test_a_pool_that_cannot_use_what_it_keeps_is_held_to_the_limit(world: World) -> None:
    program = world.start(**limited(128 * MIB), STANDIN_FRAGMENTED="1")
    program.ask("launch 1 1")
    program.ask(f"threshold {GIB}")
    for _ in range(3):
        assert program.ask_fields(f"alloc async {64 * MIB}")["result"] == "0"
        assert used_mib(world, program) <= 128
        assert int(program.ask_fields("books")["now"]) <= 128 * MIB
        program.ask("free 0")


def test_a_pool_is_charged_where_it_lies(world: World) -> None:
    program = world.start(**limited(256 * MIB), STANDIN_GPUS="2")
    program.ask("launch 1 1")
    program.ask("device 1")
    program.ask("launch 1 1")
    program.ask("newpool 0")
    program.ask(f"alloc pool {32 * MIB}")
    program.ask("newpool -1")
    program.ask(f"alloc pool {512 * MIB}")
    assert (used_mib(world, program, 0), used_mib(world, program, 1)) == (32, 0)


def test_what_a_destroyed_pool_gave_counts_until_it_is_freed(world: World) -> None:
    program = world.start(**limited(256 * MIB))
    program.ask("launch 1 1")
    program.ask("newpool 0")
    program.ask(f"alloc pool {64 * MIB}")
    program.ask(f"alloc pool {64 * MIB}")
    program.ask("free 0")
    assert program.ask("endpool") == "endpool result=0"
    assert used_mib(world, program) == 64
    program.ask("free 1")
    assert used_mib(world, program) == 0


def test_a_driver_that_tells_nothing_of_its_pools_is_charged_by_allocations(world: World) -> None:
    program = world.start(**limited(64 * MIB), STANDIN_OLD_POOLS="1")
    assert program.ask_fields(f"alloc async {33 * MIB}")["result"] == "0"
    assert program.ask_fields(f"alloc async {32 * MIB}")["result"] == "2"
    program.ask("free 0")
    assert program.ask_fields(f"alloc async {32 * MIB}")["result"] == "0"


def test_memory_freed_from_afar_is_shown_where_it_was(world: World) -> None:
    program = world.start(**limited(256 * MIB), STANDIN_GPUS="2")
    program.ask("launch 1 1")
    program.ask(f"alloc plain {32 * MIB}")
    program.ask("device 1")
    program.ask("launch 1 1")
    program.ask(f"alloc plain {64 * MIB}")
    program.ask("free 0")
    assert (used_mib(world, program, 0), used_mib(world, program, 1)) == (0, 64)


# ---- what the context takes, which no allocation shows ----


def test_a_context_larger_than_thought_is_measured_and_charged(world: World) -> None:
    program = world.start(
        TREADLE_MEMORY_BYTES=str(2048 * MIB), STANDIN_CONTEXT_BYTES=str(700 * MIB)
    )
    program.ask("launch 1 1")
    assert program.ask_fields(f"alloc plain {1350 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc plain {1348 * MIB}")["result"] == "0"
    assert used_mib(world, program) == 2048


@pytest.mark.parametrize("more", [{}, {"STANDIN_CONTEXT_BYTES": str(100 * MIB)}])
def test_a_context_of_unknown_size_is_charged_as_usual(world: World, more: dict[str, str]) -> None:
    program = world.start(TREADLE_MEMORY_BYTES=str(2048 * MIB), **more)
    assert program.ask_fields(f"alloc plain {1550 * MIB}")["result"] == "2"
    assert program.ask_fields(f"alloc plain {1548 * MIB}")["result"] == "0"


def test_a_context_whose_size_was_said_is_not_measured(world: World) -> None:
    program = world.start(**limited(1024 * MIB, 24 * MIB), STANDIN_CONTEXT_BYTES=str(700 * MIB))
    assert program.ask_fields(f"alloc plain {1000 * MIB}")["result"] == "0"
