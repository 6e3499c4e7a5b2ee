"""What may be asked of a job."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treadle.errors import InvalidRequestError
from treadle.programs.spec import JobSpec, Submission, decode_submission, sendable
from treadle.types import Priority, TaskState

from .made import job, spec


def body(array: Any = (), **fields: Any) -> bytes:
    return json.dumps({"job": {"command": ["true"], **fields}, "array": array}).encode()


def test_a_command_is_enough() -> None:
    submission = decode_submission(b'{"job": {"command": ["true"]}}')
    assert submission == Submission(job=JobSpec(command=("true",)))
    assert submission.job.priority == "background"


def test_everything_can_be_said() -> None:
    fields = {
        "name": "train",
        "priority": "normal",
        "memory_bytes": 1 << 40,
        "gpus": 8,
        "share": 0.5,
        "time_limit_seconds": 3600,
        "max_kernel_seconds": 2.5,
        "on_long_kernel": "stop",
        "retries": 3,
        "after": [1, 2**63 - 1],
        "env": {"A": "", "B": "=é"},
        "cwd": "/tmp",
        "umask": 0o027,
        "grace_seconds": 0,
        "log_bytes": 4096,
    }
    submission = decode_submission(body([0, 5], **fields))
    assert json.loads(msgspec.json.encode(submission.job)) == {"command": ["true"], **fields}
    assert submission.array == (0, 5)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (b"", "not a submission"),
        (b"nonsense", "not a submission"),
        (b"[]", "Expected `object`"),
        (b"{}", "missing required field `job`"),
        (b'{"job": {}}', "missing required field `command`"),
        (b'{"job": {"command": ["\xff"]}}', "not a submission"),
        (b'{"job": {"command": ["\\ud800"]}}', "not a submission"),
        (b"[" * 100_000, "not a submission"),
        (b'{"job": {"command": ["true"]}, "x": 1}', "unknown field `x`"),
        (body(command=[]), "length >= 1"),
        (body(command="true"), "Expected `array`"),
        (body(command=[""]), "the program's name is empty"),
        (body(command=["x"] * 4097), "length <= 4096"),
        (body(command=["a", "b\0"]), "cannot hold a zero byte"),
        (body(cwd="/a\0"), "cannot hold a zero byte"),
        (body(env={"A\0": ""}), "cannot hold a zero byte"),
        (body(env={"A": "\0"}), "cannot hold a zero byte"),
        (body(cwd="here"), "cwd: 'here'; allowed: an absolute path"),
        (body(env={"": "x"}), "env: '' is no name of a variable"),
        (body(env={"A=B": "x"}), "env: 'A=B' is no name of a variable"),
        (body(env={"A": 1}), "Expected `str`"),
        (body(name="x" * 201), "length <= 200"),
        (body(name="red\x1b[31m"), "allowed: printable characters"),
        (body(priority="urgent"), "Invalid enum value 'urgent'"),
        (body(memory_bytes=0), "int` >= 1"),
        (body(gpus=-1), "int` >= 0"),
        (body(max_kernel_seconds=0), "float` >= 0.1"),
        (body(max_kernel_seconds=1, gpus=0), "a job without GPUs has no kernels to watch"),
        (body(on_long_kernel="kill"), "Invalid enum value 'kill'"),
        (body(on_long_kernel="stop"), "on_long_kernel: needs max_kernel_seconds"),
        (body(gpus=65), "int` <= 64"),
        (body(share=-0.1), "float` >= 0"),
        (body(time_limit_seconds=0), "float` > 0"),
        (body(time_limit_seconds=1e10), "float` <= "),
        (body(retries=1001), "int` <= 1000"),
        (body(after=[0]), "int` >= 1"),
        (body(after=[2**63]), "int` <= 9223372036854775807"),
        (body(after=[1] * 1001), "length <= 1000"),
        (body(umask=0o1000), "int` <= 511"),
        (body(grace_seconds=-1), "float` >= 0"),
        (body(log_bytes=100), "int` >= 4096"),
        (body(array_index=-1), "int` >= 0"),
        (body(nonsense=1), "unknown field `nonsense`"),
        (body(array=[-1]), "int` >= 0"),
        (body(array=[1, 1]), "each number once"),
        (body(array=[2**70]), "int` <= 9223372036854775807"),
    ],
)
def test_what_is_wrong_is_said(wrong: bytes, says: str) -> None:
    with pytest.raises(InvalidRequestError) as error:
        decode_submission(wrong)
    assert says in str(error.value)


def test_an_array_has_a_limit() -> None:
    with pytest.raises(InvalidRequestError, match="length <= 100000"):
        decode_submission(body(array=[*range(100_001)]))


@given(st.binary())
def test_no_bytes_are_met_with_anything_else(data: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        decode_submission(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*JobSpec.__struct_fields__]), json_values), json_values)
def test_no_fields_are_met_with_anything_else(fields: dict[str, Any], array: Any) -> None:
    try:
        submission = decode_submission(body(array, **fields))
    except InvalidRequestError:
        return
    assert submission.job.command


def test_a_job_is_named_after_its_program() -> None:
    assert job(1, spec=spec("/usr/bin/python", "train.py")).name == "python"
    assert job(1, spec=spec("/usr/bin/python", name="mine")).name == "mine"
    assert job(1, spec=spec(priority="critical")).priority is Priority.CRITICAL


def test_what_is_told_of_a_job_has_no_environment() -> None:
    one = job(3, spec=spec("a", "b", env={"SECRET": "x"}), state=TaskState.PAUSED, devices=("cpu",))
    told = one.told()
    assert told["spec"] == {"command": ("a", "b")}
    assert (told["id"], told["name"], told["state"]) == (3, "a", "paused")
    assert one.spec.env == {"SECRET": "x"}


@pytest.mark.parametrize("field", ["memory_bytes", "host_memory_bytes"])
@pytest.mark.parametrize("amount", [0, -1, 1000, 10**20])
def test_an_amount_of_memory_is_one_that_a_machine_can_have(field: str, amount: int) -> None:
    with pytest.raises(InvalidRequestError, match=field):
        decode_submission(body(**{field: amount}))


def test_an_array_is_not_too_large_but_for_its_environment_which_is_kept_once() -> None:
    with pytest.raises(InvalidRequestError, match="allowed: 256 MiB for all together"):
        decode_submission(body([*range(10_000)], command=["true", "x" * 100_000]))
    assert decode_submission(body([*range(10_000)], env={"A": "x" * 100_000})).array


def test_what_is_not_text_is_left_out_of_an_environment() -> None:
    assert sendable({"A": "é", "B": "\udcff", "\udcfe": "C"}) == {"A": "é"}
