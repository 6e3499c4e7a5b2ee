"""Shared memory that is not there, not theirs, too small, or gone meanwhile."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode
from .shared import BOTH, MODELS, OPEN, REGIONS, STEP, A, Client, MakeMemory


@pytest.fixture(scope="module")
def node(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(OPEN + MODELS)


@pytest.fixture
def client(node: RunningNode, protocol: str) -> Iterator[Client]:
    if protocol == "http":
        client = Client(triton_http, f"127.0.0.1:{node.port}")
    else:
        client = Client(triton_grpc, node.grpc)
    with client.calls:
        yield client
        client.calls.unregister_system_shared_memory()


@BOTH
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "names no shared memory object"),
        ("/", "names no shared memory object"),
        ("..", "names no shared memory object"),
        ("../../etc/passwd", "names no shared memory object"),
        ("/../etc/passwd", "names no shared memory object"),
        ("//etc/passwd", "names no shared memory object"),
        ("a/b", "names no shared memory object"),
        ("x" * 300, "names no shared memory object"),
        ("nothing-of-that-name", "No such file"),
    ],
)
def test_a_key_that_names_no_object_is_refused(client: Client, key: str, said: str) -> None:
    with pytest.raises(InferenceServerException, match=said):
        client.calls.register_system_shared_memory("r", key, 1)


@pytest.fixture
def beside() -> Iterator[Path]:
    """A path among the shared memory objects, for something that is none."""
    path = Path("/dev/shm", f"treadle-test-{os.getpid()}-beside")
    yield path
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


@BOTH
@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_what_is_no_object_is_refused(
    client: Client, memory: MakeMemory, beside: Path, kind: str
) -> None:
    match kind:
        case "link":
            beside.symlink_to(memory(100).path)
        case "folder":
            beside.mkdir()
        case "pipe":
            os.mkfifo(beside)
    with pytest.raises(InferenceServerException, match="shared memory object"):
        client.calls.register_system_shared_memory("r", beside.name, 1)


@BOTH
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_an_object_of_another_users_is_refused(client: Client, memory: MakeMemory) -> None:
    given = memory(100)
    os.chown(given.path, 12345, -1)
    with pytest.raises(InferenceServerException, match="of the node's user or of the caller's"):
        client.calls.register_system_shared_memory("r", given.key, 100)


@BOTH
@pytest.mark.parametrize(("nbytes", "offset"), [(101, 0), (51, 50), (1, 100), (0, 0)])
def test_a_region_beyond_its_object_is_refused(
    client: Client, memory: MakeMemory, nbytes: int, offset: int
) -> None:
    with pytest.raises(InferenceServerException, match=r"bytes; the region|allowed: from 0"):
        client.calls.register_system_shared_memory("r", memory(100).key, nbytes, offset=offset)


@BOTH
def test_a_name_is_taken_once(client: Client, memory: MakeMemory) -> None:
    given = memory(100)
    client.calls.register_system_shared_memory("r", given.key, 100)
    with pytest.raises(InferenceServerException, match="registered already"):
        client.calls.register_system_shared_memory("r", given.key, 100)


# place of the input, place of the output, what is said
WRONG_PLACES: list[tuple[tuple[Any, ...], tuple[Any, ...], str]] = [
    (("nowhere", 16), ("r", 16), "input 'x': no shared memory region 'nowhere'"),
    (("r", 16), ("nowhere", 16), "output 'y': no shared memory region 'nowhere'"),
    (("r", 16, 90), ("r", 16), "ends at byte 106"),
    (("r", 16), ("r", 16, 90), "ends at byte 106"),
    (("r", 16, 2**62), ("r", 16), "ends at byte"),
    (("r", 12), ("r", 16), "needs 16"),
    (("r", 16), ("r", 8), "has 16 bytes; the request gives it 8"),
]


@BOTH
@pytest.mark.parametrize(("source", "target", "said"), WRONG_PLACES)
def test_a_wrong_place_is_refused_with_the_reason(
    client: Client, memory: MakeMemory, source: Any, target: Any, said: str
) -> None:
    given = memory(100)
    client.calls.register_system_shared_memory("r", given.key, 100)
    with pytest.raises(InferenceServerException, match=said):
        client.calls.infer(
            "echo",
            [client.put("x", [4], "FP32", *source)],
            outputs=[client.take("y", *target)],
        )


@BOTH
@pytest.mark.parametrize(
    ("model", "datatype", "data", "said"),
    [
        ("texts", "BYTES", b"\xff\0\0\0ab", "reaches past the end"),
        ("truths", "BOOL", b"\2\0\0\0\0\0", "0 and 1"),
    ],
)
def test_data_that_lies_is_refused(
    client: Client, memory: MakeMemory, model: str, datatype: str, data: bytes, said: str
) -> None:
    given = memory(100)
    given.write(np.frombuffer(data, np.uint8))
    client.calls.register_system_shared_memory("r", given.key, 100)
    shape = [1] if datatype == "BYTES" else [6]
    with pytest.raises(InferenceServerException, match=said):
        client.calls.infer(model, [client.put("x", shape, datatype, "r", 6)])


@BOTH
def test_more_than_a_body_may_have_is_refused(client: Client, memory: MakeMemory) -> None:
    given = memory(24_000_000)
    client.calls.register_system_shared_memory("r", given.key, 24_000_000)
    with pytest.raises(InferenceServerException, match="allowed: 20000000"):
        client.calls.infer("echo", [client.put("x", [6_000_000], "FP32", "r", 24_000_000)])


@BOTH
def test_an_object_that_shrinks_is_an_error_and_not_the_end(
    client: Client, memory: MakeMemory
) -> None:
    given = memory(100_000)
    client.calls.register_system_shared_memory("r", given.key, 100_000)
    os.truncate(given.path, 5000)
    for source, target in (((100, 6000), (100, 0)), ((100, 0), (100, 6000))):
        with pytest.raises(InferenceServerException, match="has shrunk"):
            client.calls.infer(
                "echo",
                [client.put("x", [25], "FP32", "r", *source)],
                outputs=[client.take("y", "r", *target)],
            )
    os.truncate(given.path, 100_000)
    client.calls.infer("echo", [client.put("x", [25], "FP32", "r", 100, 6000)])


def test_an_object_that_shrinks_while_the_request_runs_is_an_error(
    start_node: StartNode, memory: MakeMemory, pool: ThreadPoolExecutor
) -> None:
    node, given = start_node(STEP), memory(100)
    given.write(np.array([5], np.int64))
    node.local.post(f"{REGIONS}/region/r/register", json={"key": given.key, "byte_size": 100})
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    asked = {
        "inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 1], "parameters": place}],
        "outputs": [{"name": "y", "parameters": {**place, "shared_memory_offset": 50}}],
    }
    with node.shut("step"):
        running = pool.submit(node.local.post, "/v2/models/step/infer", json=asked)
        node.wait_for_run("step: 5")
        given.write(np.array([7], np.int64))  # what was read is the node's own
        os.truncate(given.path, 10)
    assert "has shrunk" in error(running.result(), 400)
    assert result(infer(node, "step", 1)) == [2]


@BOTH
def test_an_object_that_is_deleted_stays_until_it_is_unregistered(
    client: Client, memory: MakeMemory
) -> None:
    given = memory(100)
    given.write(A[0])
    client.calls.register_system_shared_memory("r", given.key, 100)
    given.close()
    answer = client.calls.infer("echo", [client.put("x", [4], "FP32", "r", 16)])
    np.testing.assert_array_equal(answer.as_numpy("y"), A[0])


def test_files_are_closed_when_regions_are_forgotten(node: RunningNode, memory: MakeMemory) -> None:
    given = memory(100)

    def is_open() -> bool:
        places = Path(f"/proc/{node.process.pid}/fd").iterdir()
        return any(place.readlink() == given.path for place in places)

    body = {"key": given.key, "byte_size": 100}
    assert node.http.post(f"{REGIONS}/region/r/register", json=body).status_code == 200
    assert is_open()
    assert node.http.post(f"{REGIONS}/region/r/unregister").status_code == 200
    assert not is_open()
    # Nor is one that was opened and refused left open.
    error(node.http.post(f"{REGIONS}/region/r/register", json={**body, "byte_size": 200}), 400)
    assert not is_open()
