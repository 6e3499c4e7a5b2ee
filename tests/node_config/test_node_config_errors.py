"""Files that are wrong: every error names the file, the key and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from treadle.errors import ConfigError
from treadle.node.config import load_config
from treadle.serve.tensors import DTYPES

from .files import MODEL, load


def assert_refused(
    folder: Path, text: str, said: list[str], environment: Mapping[str, str] | None = None
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(folder, text, environment)
    message = str(caught.value)
    assert message.startswith(f"{folder / 'treadle.toml'}: {said[0]}")
    assert "\n" not in message
    assert [part for part in said if part not in message] == []


TABLES = "allowed: node, http, grpc, schedule, jobs, gpu, model, service"
# text of the file, the key, what else is said
UNKNOWN_KEYS = [
    (
        "[nod]\n",
        "nod",
        [
            "(did you mean 'node'?)",
            "allowed: node, http, grpc, schedule, jobs, gpu, model, service",
        ],
    ),
    (
        "whatever = 1\n",
        "whatever",
        [TABLES],
    ),
    ("[node]\nlog-level = 'info'\n", "node.log-level", ["(did you mean 'log_level'?)"]),
    ("[node]\nquota = 1\n", "node.quota", ["allowed: name, log_level, log_format"]),
    ("[http]\nprot = 1\n", "http.prot", ["(did you mean 'port'?)", "allowed: host, port"]),
    ("[schedule]\nage = 1\n", "schedule.age", ["age_limit_seconds"]),
    (MODEL + "prioritiy = 'normal'\n", "model[0].prioritiy", ["(did you mean 'priority'?)"]),
    (MODEL + MODEL + "x = 1\n", "model[1].x", ["allowed: name, version, onnx, factory"]),
    (
        MODEL + "inputs = [{ name = 'x', datatype = 'FP32', shape = [1], dims = 1 }]\n",
        "model[0].inputs[0].dims",
        ["allowed: name, datatype, shape"],
    ),
    (
        MODEL + "padding = { length = [1], inputs = { x = 1 } }\n",
        "model[0].padding.length",
        ["(did you mean 'lengths'?)", "allowed: lengths, inputs, outputs, fill, length_input"],
    ),
]


@pytest.mark.parametrize(("text", "key", "said"), UNKNOWN_KEYS)
def test_unknown_keys(tmp_path: Path, text: str, key: str, said: list[str]) -> None:
    assert_refused(tmp_path, text, [f"{key}: unknown key", *said])


LEVELS = ["debug", "info", "warning", "error"]

# table, key, value as it is written, what is allowed instead
VALUES: list[tuple[str, str, str, list[str]]] = [
    ("node", "name", "5", ["str"]),
    ("node", "log_level", "'trace'", ["'trace'", *LEVELS]),
    ("node", "log_level", "3", ["str"]),
    ("node", "log_format", "'xml'", ["text", "json"]),
    ("node", "drain_seconds", "-1", [">= 0"]),
    ("node", "drain_seconds", "61", ["<= 60"]),
    ("node", "drain_seconds", "nan", ["0"]),
    ("http", "host", "1", ["str"]),
    ("http", "port", "-1", [">= 0"]),
    ("http", "port", "65536", ["<= 65535"]),
    ("http", "port", "'80'", ["int"]),
    ("http", "port", "80.5", ["int"]),
    ("http", "token", "5", ["str"]),
    ("http", "open_model_control", "1", ["bool"]),
    ("http", "shared_memory", "1", ["bool"]),
    ("http", "max_body_bytes", "1023", [">= 1024"]),
    ("http", "max_body_bytes", "4294967297", ["<= 4294967296"]),
    ("http", "silence_seconds", "0", ["> 0"]),
    ("http", "silence_seconds", "86401", ["<= 86400"]),
    ("http", "silence_seconds", "inf", ["<= 86400"]),
    ("http", "keep_alive_seconds", "0", [">= 1"]),
    ("http", "keep_alive_seconds", "3601", ["<= 3600"]),
    ("grpc", "host", "1", ["str"]),
    ("grpc", "port", "-1", [">= 0"]),
    ("grpc", "port", "65536", ["<= 65535"]),
    ("grpc", "socket", f"'{'x' * 108}'", ["<= 107"]),
    ("grpc", "max_message_bytes", "1023", [">= 1024"]),
    ("grpc", "max_message_bytes", "2147483648", ["<= 2147483647"]),
    ("schedule", "policy", "'random'", ["fifo", "priority"]),
    ("schedule", "age_limit_seconds", "0", ["> 0"]),
    ("schedule", "age_limit_seconds", "nan", ["> 0"]),
    ("schedule", "aged_duty", "0", ["> 0"]),
    ("schedule", "aged_duty", "1.01", ["<= 1"]),
    ("schedule", "clients_may_raise_priority", "'yes'", ["bool"]),
    ("model", "version", "1", ["str"]),
    ("model", "version", "''", ["matching"]),
    ("model", "onnx", "1", ["str"]),
    ("model", "inputs", "[{ name = '', datatype = 'FP32', shape = [1] }]", [">= 1"]),
    ("model", "inputs", "[{ name = 'x', datatype = 'FP32', shape = [-2] }]", [">= -1"]),
    ("model", "inputs", "[{ name = 'x', datatype = 'FP32', shape = 1 }]", ["array"]),
    ("model", "inputs", "[{ name = 'x', datatype = 'FP32' }]", ["missing", "`shape`"]),
    ("model", "outputs", "[{ name = 'x', shape = [1] }]", ["missing", "`datatype`"]),
    ("model", "inputs", "'x'", ["array"]),
    ("model", "parameters", "[1]", ["object"]),
    ("model", "device", "'tpu'", ["cpu"]),
    ("model", "share", "0", ["> 0"]),
    ("model", "share", "1.5", ["<= 1"]),
    ("model", "share", "nan", ["> 0"]),
    ("model", "priority", "'urgent'", ["critical", "normal", "background"]),
    ("model", "priority", "'Critical'", ["critical", "normal", "background"]),
    ("model", "p99_seconds", "0", ["> 0"]),
    ("model", "p99_seconds", "'50 ms'", ["float"]),
    ("model", "replicas", "0", [">= 1"]),
    ("model", "replicas", "65", ["<= 64"]),
    ("model", "max_batch", "0", [">= 1"]),
    ("model", "max_batch", "4097", ["<= 4096"]),
    ("model", "max_delay_seconds", "-0.1", [">= 0"]),
    ("model", "max_delay_seconds", "61", ["<= 60"]),
    ("model", "queue_limit", "0", [">= 1"]),
    ("model", "queue_limit", "1000001", ["<= 1000000"]),
    ("model", "timeout_seconds", "0", ["> 0"]),
    ("model", "timeout_seconds", "1e6", ["<= 86400"]),
    ("model", "run_limit_seconds", "0", ["> 0"]),
    ("model", "load_limit_seconds", "-1", ["> 0"]),
    ("model", "stream_stall_seconds", "0", ["> 0"]),
    ("model", "worker", "'two words'", ["matching"]),
    ("model", "env", "{ A = 1 }", ["str"]),
    ("model", "examples", "'a.wav'", ["array"]),
    ("model", "load", "'no'", ["bool"]),
]


@pytest.mark.parametrize(("table", "key", "value", "allowed"), VALUES)
def test_impossible_values(
    tmp_path: Path, table: str, key: str, value: str, allowed: list[str]
) -> None:
    before = MODEL if table == "model" else f"[{table}]\n"
    place = f"model[0].{key}" if table == "model" else f"{table}.{key}"
    assert_refused(tmp_path, f"{before}{key} = {value}\n", [place, *allowed])


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "a b", "a/b", "../a", "ä", "a" * 129, r"a\n", r"\na"]
)
@pytest.mark.parametrize("key", ["name", "worker", "version"])
def test_names_are_plain(tmp_path: Path, name: str, key: str) -> None:
    text = MODEL + f'{key} = "{name}"\n'
    if key == "name":
        text = f'[[model]]\nname = "{name}"\nfactory = "a:b"\n'
    assert_refused(tmp_path, text, [f"model[0].{key}", "A-Za-z0-9"])


# text of the file, what is said
TOGETHER = [
    ("[[model]]\nfactory = 'a:b'\n", ["model[0]", "missing", "`name`"]),
    ("[[model]]\nname = 'a'\n", ["model[0] (a)", "exactly one of the keys onnx, factory"]),
    (MODEL + MODEL, ["model[1] (m)", "'m' is already taken"]),
    (
        MODEL + "inputs = [{ name = 'x', datatype = 'float', shape = [1] }]\n",
        ["model[0] (m)", "datatype", "'float'", ", ".join(DTYPES)],
    ),
    ("[model]\nname = 'a'\n", ["model", "array"]),
    ("node = 5\n", ["node", "object"]),
    ("http = []\n", ["http", "object"]),
    ("[grpc]\nhost = '0.0.0.0'\n", ["grpc.host", "127.0.0.1, ::1 or localhost", "http.token"]),
    ("[http]\nhost = '0.0.0.0'\n", ["http.host", "127.0.0.1, ::1 or localhost", "http.token"]),
]


@pytest.mark.parametrize(("text", "said"), TOGETHER)
def test_what_does_not_go_together(tmp_path: Path, text: str, said: list[str]) -> None:
    assert_refused(tmp_path, text, said)


@pytest.mark.parametrize("text", ["[http", "a = ", "a = 1\na = 2\n", "[http]\nport = 08\n"])
def test_what_is_not_toml(tmp_path: Path, text: str) -> None:
    assert_refused(tmp_path, text, ["not valid TOML", "at "])


def test_what_is_not_text(tmp_path: Path) -> None:
    file = tmp_path / "treadle.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"treadle\.toml: not UTF-8 text"):
        load_config(file, {})


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.toml: No such file or directory"):
        load_config(tmp_path / "absent.toml", {})
    with pytest.raises(ConfigError, match="Is a directory"):
        load_config(tmp_path, {})


@pytest.mark.parametrize("value", ["http", "80.5", "0x50", " "])
def test_a_port_in_a_variable_is_a_whole_number(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigError, match=r"TREADLE_HTTP_PORT: .*; allowed: a whole number"):
        load(tmp_path, "", {"TREADLE_HTTP_PORT": value})


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TREADLE_HTTP_PORT", "70000", ["http.port", "<= 65535"]),
        ("TREADLE_LOG_LEVEL", "loud", ["node.log_level", *LEVELS]),
        ("TREADLE_POLICY", "random", ["schedule.policy", "fifo", "priority"]),
    ],
)
def test_a_variable_is_checked_like_the_file(
    tmp_path: Path, variable: str, value: str, said: list[str]
) -> None:
    assert_refused(tmp_path, "", said, {variable: value})


@pytest.mark.parametrize("text", ["http = 5\n", "http = 'x'\n", "http = []\n", "[[http]]\n"])
def test_a_variable_over_a_file_that_is_wrong_there(tmp_path: Path, text: str) -> None:
    assert_refused(tmp_path, text, ["http", "object"], {"TREADLE_HTTP_PORT": "8000"})
