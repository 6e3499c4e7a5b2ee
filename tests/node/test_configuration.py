"""Configuration files that cannot be used: where, why, and what would be allowed."""

from __future__ import annotations

import subprocess

import pytest

from .conftest import MakeHome, RunHere
from .nodes import Home

STEP = '[[model]]\nname = "step"\nfactory = "steps:Step"\n'

BAD: dict[str, tuple[str, list[str]]] = {
    "unknown table": ("[htp]\nport = 1", ["htp", "did you mean 'http'?", "schedule"]),
    "unknown key": ("[http]\nprot = 1", ["http.prot", "did you mean 'port'?", "host"]),
    "unknown key without a likeness": ("[http]\nzzz = 1", ["http.zzz", "allowed: host, port"]),
    "unknown key of a model": (
        STEP + 'max_bach = 4\n[[model]]\nname = "b"\nfactory = "steps:Step"',
        ["model[0].max_bach", "did you mean 'max_batch'?"],
    ),
    "no TOML": ("[http\nport = 1", ["not valid TOML", "line 1"]),
    "port out of range": ("[http]\nport = 70000", ["http.port", "65535"]),
    "port that is no number": ('[http]\nport = "8000"', ["http.port", "int"]),
    "policy unknown": ('[schedule]\npolicy = "lifo"', ["schedule.policy", "lifo"]),
    "negative time": ("[node]\ndrain_seconds = -1", ["node.drain_seconds", "0"]),
    "time that is none": ("[http]\nsilence_seconds = nan", ["http.silence_seconds"]),
    "endless time": ("[schedule]\nage_limit_seconds = 0", ["schedule.age_limit_seconds"]),
    "share over one": (STEP + "share = 1.5", ["model[0].share", "1"]),
    "batch of none": (STEP + "max_batch = 0", ["model[0].max_batch", "1"]),
    "priority unknown": (STEP + 'priority = "urgent"', ["model[0].priority", "urgent"]),
    "no name": ('[[model]]\nfactory = "steps:Step"', ["model[0]", "name"]),
    "name with a slash": ('[[model]]\nname = "a/b"\nfactory = "steps:Step"', ["model[0].name"]),
    "name twice": (STEP + STEP, ["model[1]", "'step' is already taken"]),
    "onnx and factory": (STEP + 'onnx = "m.onnx"', ["model[0]", "exactly one", "onnx", "factory"]),
    "neither": ('[[model]]\nname = "step"', ["model[0]", "exactly one", "onnx", "factory"]),
    "factory without colon": (
        '[[model]]\nname = "step"\nfactory = "steps.Step"',
        ["factory", '"module:callable"'],
    ),
    "variable with a sign in its name": (STEP + 'env = { "A=B" = "1" }', ["env"]),
    "variable with a zero byte": (STEP + 'env = { A = "\\u0000" }', ["env"]),
    "unknown datatype": (
        STEP + 'inputs = [{ name = "x", datatype = "FLOAT", shape = [1] }]',
        ["datatype", "FLOAT", "FP32"],
    ),
    "one worker, two priorities": (
        STEP + 'worker = "w"\n' + STEP.replace("step", "b") + 'worker = "w"\npriority = "critical"',
        ["worker", "'w'", "priority"],
    ),
    "open to the world without a token": (
        '[http]\nhost = "0.0.0.0"',
        ["http.host", "0.0.0.0", "token"],
    ),
}


def failed(process: subprocess.CompletedProcess[str], code: int) -> str:
    """The text of a command that must have failed, in one line."""
    assert process.returncode == code, process.stderr
    assert process.stdout == ""
    assert process.stderr.startswith("treadle: ")
    assert process.stderr.count("\n") == 1, process.stderr
    return process.stderr


@pytest.mark.parametrize(("toml", "words"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_with_its_name_the_place_and_what_is_allowed(
    make_home: MakeHome, run_here: RunHere, toml: str, words: list[str]
) -> None:
    home = make_home(toml)
    text = failed(run_here(home, "check", str(home.config)), 3)
    for word in (str(home.config), *words):
        assert word in text


def refusal(home: Home, *options: str) -> str:
    """Why a node does not start; nothing of it may be left behind."""
    text = failed(home.treadle("up", str(home.config), *options), 3)
    assert home.processes() == []
    return text


def test_a_node_does_not_start_with_a_bad_file(make_home: MakeHome) -> None:
    assert "did you mean 'port'?" in refusal(make_home("[http]\nprot = 1"))


def test_a_file_that_is_not_there_is_named(make_home: MakeHome) -> None:
    home = make_home()
    home.config.unlink()
    text = refusal(home)
    assert str(home.config) in text
    assert "No such file" in text


def test_a_file_that_is_no_text_is_named(make_home: MakeHome) -> None:
    home = make_home()
    home.config.write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refusal(home)


def test_a_folder_is_no_file(make_home: MakeHome) -> None:
    home = make_home()
    text = failed(home.treadle("check", str(home.folder)), 3)
    assert str(home.folder) in text


@pytest.mark.parametrize("port", ["70000", "-1"])
def test_a_port_option_out_of_range_is_refused(make_home: MakeHome, port: str) -> None:
    process = make_home(STEP).treadle("up", "treadle.toml", "--port", port)
    assert process.returncode in (2, 3), process.stderr
    assert "--port" in process.stderr
    assert "Traceback" not in process.stderr


def test_a_policy_option_that_is_none_is_refused(make_home: MakeHome) -> None:
    text = refusal(make_home(STEP), "--policy", "lifo")
    assert "--policy" in text
    assert "fifo, priority" in text


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("TREADLE_HTTP_PORT", "http", ["TREADLE_HTTP_PORT", "whole number"]),
        ("TREADLE_HTTP_PORT", "70000", ["http.port", "65535"]),
        ("TREADLE_POLICY", "lifo", ["schedule.policy", "lifo"]),
        ("TREADLE_LOG_LEVEL", "loud", ["node.log_level", "loud"]),
        ("TREADLE_HTTP_HOST", "0.0.0.0", ["http.host", "TREADLE_HTTP_TOKEN"]),
    ],
)
def test_a_bad_variable_is_refused(
    make_home: MakeHome, variable: str, value: str, words: list[str]
) -> None:
    text = refusal(make_home(STEP, {variable: value}))
    for word in words:
        assert word in text


def test_a_good_file_is_called_good_and_nothing_is_started(make_home: MakeHome) -> None:
    home = make_home(STEP)
    process = home.treadle("check", str(home.config))
    assert process.returncode == 0, process.stderr
    assert "good" in process.stdout
    assert not (home.folder / "run").exists()
    assert not (home.folder / "state").exists()
