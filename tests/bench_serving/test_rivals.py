"""Other servers with the same models: what they speak, what is tried, where they are looked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from treadle.bench.loadtest.bodies import encode_json
from treadle.bench.loadtest.sender import what_is_wrong
from treadle.bench.serving.plays import PLAYS, RIVAL_MODES
from treadle.bench.serving.rivals.launch import RIVALS
from treadle.bench.serving.rivals.play import models_of, play_rival
from treadle.bench.serving.rivals.sweep import Grid, Setting, Tried, best_of, next_to_try
from treadle.bench.serving.rivals.wire import HEADER_LENGTH, Array, decode, encode
from treadle.bench.serving.run import Settings
from treadle.client.node import Answer, encode_request
from treadle.serve.tensors import from_array

IDS = np.arange(6, dtype=np.int64).reshape(1, 6)
NUMBERS = np.linspace(0, 1, 4, dtype=np.float32).reshape(1, 2, 2)
TENSORS = [from_array("ids", IDS), from_array("numbers", NUMBERS)]
SETTINGS = Settings(device="cpu", tiny=True, seconds=1, precision=0.5, processes=1, seed=1)
GRID = Grid(batches=(32, 8, 64), delays_seconds=(0.005, 0.0), processes=(1, 4))


def setting(max_batch: int, delay_seconds: float, processes: int) -> Setting:
    return Setting(max_batch=max_batch, delay_seconds=delay_seconds, processes=processes)


@pytest.mark.parametrize("encoder", [encode_request, encode_json])
def test_what_a_client_encodes_is_decoded(encoder: object) -> None:
    assert callable(encoder)
    request = encoder(TENSORS)
    length = request.headers.get(HEADER_LENGTH)
    found = decode(request.body, None if length is None else int(length))
    assert list(found) == ["ids", "numbers"]
    expected_arrays: list[Array] = [IDS, NUMBERS]
    for array, expected in zip(found.values(), expected_arrays, strict=True):
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)


def test_an_answer_is_one_to_the_load_generator() -> None:
    body, header_nbytes = encode("ranker", {"score": NUMBERS})
    answer = Answer(200, body, str(header_nbytes))
    assert what_is_wrong(answer, frozenset({("score", "FP32")})) == ""
    assert body[header_nbytes:] == NUMBERS.tobytes()


def test_one_knob_after_the_other_is_turned_with_the_best_so_far() -> None:
    rates = {setting(8, 0.005, 1): 300.0, setting(8, 0.0, 1): 200.0, setting(8, 0.005, 4): 400.0}
    tried: list[Tried] = []
    while (one := next_to_try(GRID, tried)) is not None:
        tried.append(Tried(setting=one, rate=rates.get(one, 100.0)))
    assert [one.setting for one in tried] == [
        setting(32, 0.005, 1),
        setting(8, 0.005, 1),
        setting(64, 0.005, 1),
        setting(8, 0.0, 1),
        setting(8, 0.005, 4),
    ]
    assert best_of(tried).setting == setting(8, 0.005, 4)


def test_of_equals_and_of_failures_the_first_is_best() -> None:
    failed = Tried(setting=setting(32, 0.0, 1), rate=None, failed="no memory")
    held = Tried(setting=setting(8, 0.0, 1), rate=1.0)
    same = Tried(setting=setting(64, 0.0, 1), rate=1.0)
    assert best_of([failed, held, same]) is held
    assert best_of([failed, Tried(setting=same.setting, rate=None)]) is failed


@pytest.mark.parametrize("name", RIVAL_MODES)
def test_a_server_without_packages_is_left_out(name: str, tmp_path: Path) -> None:
    played = asyncio.run(play_rival(PLAYS["one"], name, SETTINGS, 1.0, tmp_path, None))
    assert played.test is None
    assert played.failed == ""
    assert f"has no package {name}" in played.left_out


@pytest.mark.parametrize("name", RIVAL_MODES)
def test_a_server_is_told_of_every_model(name: str) -> None:
    one = setting(8, 0.005, 1)
    written = str(RIVALS[name].write(1234, models_of(PLAYS["two"], SETTINGS, one), one))
    assert all(word in written for word in ("1234", "vision", "language", "0.005"))


def test_only_what_is_searched_for_is_compared() -> None:
    compared = [play.name for play in PLAYS.values() if play.compared]
    assert compared == ["one", "one-language", "two", "two-bursts"]
    assert all(PLAYS[name].search for name in compared)
