"""Files that are right: what they say, what they leave out, and the variables over them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from treadle.errors import ConfigError
from treadle.node.config import load_config
from treadle.serve.padding import PaddingConfig

from .files import MODEL, load


def test_an_empty_file_is_a_node_without_models(tmp_path: Path) -> None:
    _, config = load(tmp_path, "")
    assert config.model == ()


# The defaults that the documentation promises.
DEFAULTS: dict[str, dict[str, Any]] = {
    "node": {
        "name": "treadle",
        "log_level": "info",
        "log_format": "text",
        "drain_seconds": 30.0,
        "devices": "auto",
        "group": "",
    },
    "http": {
        "host": "127.0.0.1",
        "port": 8000,
        "token": "",
        "open_model_control": False,
        "shared_memory": False,
        "max_body_bytes": 64 * 2**20,
        "silence_seconds": 15.0,
        "keep_alive_seconds": 75,
    },
    "grpc": {
        "host": "127.0.0.1",
        "port": None,
        "socket": "",
        "max_message_bytes": 64 * 2**20,
    },
    "schedule": {
        "policy": "priority",
        "age_limit_seconds": 10.0,
        "aged_duty": 0.1,
        "clients_may_raise_priority": False,
    },
}
MODEL_DEFAULTS: dict[str, Any] = {
    "version": "1",
    "onnx": None,
    "torchscript": None,
    "exported": None,
    "inputs": (),
    "outputs": (),
    "parameters": {},
    "device": "cpu",
    "dtype": None,
    "compile": False,
    "cuda_graph": False,
    "graph_memory": "1GiB",
    "warm_up": None,
    "sm_share": 1.0,
    "profile": None,
    "share": 1.0,
    "priority": "normal",
    "p99_seconds": None,
    "use_whole_objective": False,
    "when_late": "serve",
    "replicas": 1,
    "max_batch": 1,
    "max_delay_seconds": 0.0,
    "padding": None,
    "queue_limit": 256,
    "timeout_seconds": 60.0,
    "run_limit_seconds": 60.0,
    "load_limit_seconds": 600.0,
    "streaming": False,
    "stream_stall_seconds": 30.0,
    "worker": None,
    "env": {},
    "examples": (),
    "load": True,
}


def test_what_a_minimal_file_leaves_out_has_its_documented_default(tmp_path: Path) -> None:
    _, config = load(tmp_path, MODEL)
    for name, defaults in DEFAULTS.items():
        table = getattr(config, name)
        assert {field: getattr(table, field) for field in table.__struct_fields__} == defaults
    (model,) = config.model
    fields = {field: getattr(model, field) for field in model.__struct_fields__}
    assert (fields.pop("name"), fields.pop("factory")) == ("m", "module:callable")
    assert fields == MODEL_DEFAULTS


def test_every_key_can_be_set(tmp_path: Path) -> None:
    text = """
[node]
name = "lab"
log_level = "debug"
log_format = "json"
drain_seconds = 0
group = "gpu-users"
[http]
host = "0.0.0.0"
port = 0
token = "secret"
open_model_control = true
max_body_bytes = 4294967296
silence_seconds = 0.5
keep_alive_seconds = 3600
[schedule]
policy = "fifo"
age_limit_seconds = inf
aged_duty = 1
clients_may_raise_priority = true
[[model]]
name = "A.b_c-9"
version = "2024.1"
factory = "pkg.mod:make"
inputs = [
  { name = "x", datatype = "BF16", shape = [-1, -1, 3] },
  { name = "n", datatype = "INT64", shape = [-1] },
]
outputs = [
  { name = "y", datatype = "FP32", shape = [-1, 0, -1] },
  { name = "z", datatype = "BYTES", shape = [] },
]
parameters = { depth = 3, labels = ["a", "b"], nested = { deep = true } }
device = "cpu"
share = 0.25
priority = "background"
p99_seconds = 0.05
replicas = 64
max_batch = 4096
max_delay_seconds = 60
queue_limit = 1000000
timeout_seconds = 86400
run_limit_seconds = 0.001
load_limit_seconds = 1
worker = "shared"
env = { OMP_NUM_THREADS = "1" }
examples = ["a.wav", "b.wav"]
load = false
[model.padding]
lengths = [64, 128]
inputs = { x = 1 }
outputs = { y = 2 }
fill = { x = -1.5 }
length_input = "n"
[[model]]
name = "onnx"
onnx = "package:silero_vad/data/silero_vad.onnx"
"""
    _, config = load(tmp_path, text)
    assert (config.node.drain_seconds, config.http.port) == (0, 0)
    assert config.schedule.age_limit_seconds == math.inf
    first, second = config.model
    assert first.inputs[0].shape == (-1, -1, 3)
    assert [output.shape for output in first.outputs] == [(-1, 0, -1), ()]
    assert first.padding == PaddingConfig(
        lengths=(64, 128), inputs={"x": 1}, outputs={"y": 2}, fill={"x": -1.5}, length_input="n"
    )
    assert first.parameters == {"depth": 3, "labels": ["a", "b"], "nested": {"deep": True}}
    assert (first.worker_name, second.worker_name) == ("shared", "onnx")
    assert second.onnx == "package:silero_vad/data/silero_vad.onnx"


# variable, value, table, key, what it comes to
VARIABLES = [
    ("TREADLE_LOG_LEVEL", "warning", "node", "log_level", "warning"),
    ("TREADLE_LOG_FORMAT", "json", "node", "log_format", "json"),
    ("TREADLE_HTTP_HOST", "localhost", "http", "host", "localhost"),
    ("TREADLE_HTTP_PORT", "8123", "http", "port", 8123),
    ("TREADLE_HTTP_TOKEN", "secret", "http", "token", "secret"),
    ("TREADLE_GRPC_HOST", "localhost", "grpc", "host", "localhost"),
    ("TREADLE_GRPC_PORT", "8124", "grpc", "port", 8124),
    ("TREADLE_POLICY", "fifo", "schedule", "policy", "fifo"),
]


@pytest.mark.parametrize(("variable", "value", "table", "key", "meant"), VARIABLES)
def test_a_variable_goes_before_the_file(
    tmp_path: Path, variable: str, value: str, table: str, key: str, meant: object
) -> None:
    others = {"log_level": "error", "log_format": "text", "host": "::1", "port": 1, "token": "t"}
    written = {**others, "policy": "priority"}[key]
    for text in (f"[{table}]\n{key} = {written!r}\n", ""):
        _, config = load(tmp_path, text, {variable: value, "UNRELATED": "1"})
        assert getattr(getattr(config, table), key) == meant


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    _, config = load(
        tmp_path, '[http]\nport = 9\ntoken = "t"', dict.fromkeys((v[0] for v in VARIABLES), "")
    )
    assert (config.http.port, config.http.token) == (9, "t")


def test_without_a_mapping_the_process_own_variables_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, *_ in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TREADLE_HTTP_PORT", "4321")
    (tmp_path / "treadle.toml").write_text("")
    assert load_config(tmp_path / "treadle.toml").http.port == 4321


LOCAL = ["127.0.0.1", "::1", "localhost"]
REACHABLE = ["0.0.0.0", "::", "", "192.168.1.5", "example.org", "127.0.0.1.example.org"]


@pytest.mark.parametrize("host", LOCAL)
def test_a_local_port_needs_no_token(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, f'[http]\nhost = "{host}"\n')[1].http.token == ""


@pytest.mark.parametrize("host", REACHABLE)
def test_a_port_that_other_machines_reach_needs_a_token(tmp_path: Path, host: str) -> None:
    text = f'[http]\nhost = "{host}"\n'
    with pytest.raises(ConfigError, match=r"http\.host: .* TREADLE_HTTP_TOKEN"):
        load(tmp_path, text)
    assert load(tmp_path, text + 'token = "secret"\n')[1].http.host == host
    assert load(tmp_path, text, {"TREADLE_HTTP_TOKEN": "secret"})[1].http.host == host


def test_a_variable_may_not_open_the_port_either(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"http\.host: '0\.0\.0\.0'"):
        load(tmp_path, "", {"TREADLE_HTTP_HOST": "0.0.0.0"})
