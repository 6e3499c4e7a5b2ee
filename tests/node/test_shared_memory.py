"""Tensors in system shared memory, as Triton's clients leave them there, over both protocols."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor, shared_memory

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode

Array = npt.NDArray[Any]

MODELS = """
[grpc]
port = 0
socket = "grpc.sock"

[[model]]
name = "sums"
factory = "plain:SumAndDifference"
max_batch = 8
worker = "all"

[[model]]
name = "echo"
factory = "plain:Echo"
parameters = { datatype = "FP32", rank = 1 }
worker = "all"

[[model]]
name = "texts"
factory = "plain:Echo"
parameters = { datatype = "BYTES", rank = 1 }
worker = "all"

[[model]]
name = "truths"
factory = "plain:Echo"
parameters = { datatype = "BOOL", rank = 1 }
worker = "all"
"""
STEP = """
[[model]]
name = "step"
factory = "steps:Step"
"""
OPEN = "[http]\nshared_memory = true\nmax_body_bytes = 20000000\n"
REGIONS = "/v2/systemsharedmemory"
A = np.arange(8, dtype=np.float32).reshape(2, 4)
B = np.full((2, 4), 0.5, np.float32)
BOTH = pytest.mark.parametrize("protocol", ["http", "grpc"])


class Memory:
    """A shared memory object of a client's."""

    _numbers = count()

    def __init__(self, nbytes: int) -> None:
        self.key = f"treadle-test-{os.getpid()}-{next(self._numbers)}"
        self.path = Path("/dev/shm", self.key)
        self._handle = shared_memory.create_shared_memory_region(self.key, self.key, nbytes)

    def write(self, array: Array, offset: int = 0) -> None:
        shared_memory.set_shared_memory_region(self._handle, [array], offset)

    def read(self, kind: Any, shape: list[int], offset: int = 0) -> Array:
        found: Array = shared_memory.get_contents_as_numpy(self._handle, kind, shape, offset)
        return found.copy()

    def close(self) -> None:
        if self.path.exists():
            shared_memory.destroy_shared_memory_region(self._handle)


MakeMemory = Callable[[int], Memory]


@pytest.fixture
def memory() -> Iterator[MakeMemory]:
    with ExitStack() as stack:

        def make(nbytes: int) -> Memory:
            made = Memory(nbytes)
            stack.callback(made.close)
            return made

        yield make


class Client:
    """A client of either protocol; the two modules have the same names in them."""

    def __init__(self, module: Any, address: str) -> None:
        self.module = module
        self.calls = module.InferenceServerClient(address)

    def put(self, name: str, shape: list[int], datatype: str, *place: Any) -> Any:
        """An input that lies in a region: its name, its size and where it begins."""
        tensor = self.module.InferInput(name, shape, datatype)
        tensor.set_shared_memory(*place)
        return tensor

    def take(self, name: str, *place: Any) -> Any:
        output = self.module.InferRequestedOutput(name)
        output.set_shared_memory(*place)
        return output


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


def names(status: Any) -> set[str]:
    """Names of the regions that are registered."""
    if isinstance(status, list):
        return {region["name"] for region in status}
    return set(status.regions)


@BOTH
def test_inputs_and_outputs_lie_in_a_region(client: Client, memory: MakeMemory) -> None:
    given = memory(1000)
    given.write(A, 16)
    given.write(B, 64)
    client.calls.register_system_shared_memory("r", "/" + given.key, 1000)
    answer = client.calls.infer(
        "sums",
        [
            client.put("a", [2, 4], "FP32", "r", 32, 16),
            client.put("b", [2, 4], "FP32", "r", 32, 64),
        ],
        outputs=[client.take("sum", "r", 40, 200), client.take("difference", "r", 32, 300)],
    )
    output = answer.get_output("sum")
    parameters = output["parameters"] if isinstance(output, dict) else output.parameters
    assert set(parameters) >= {"shared_memory_region", "shared_memory_byte_size"}
    np.testing.assert_array_equal(given.read(np.float32, [2, 4], 200), A + B)
    np.testing.assert_array_equal(given.read(np.float32, [2, 4], 300), A - B)


@BOTH
def test_shared_memory_and_other_data_mix(client: Client, memory: MakeMemory) -> None:
    given = memory(100)
    given.write(A)
    client.calls.register_system_shared_memory("r", given.key, 100)
    plain = client.module.InferInput("b", [2, 4], "FP32")
    plain.set_data_from_numpy(B)
    inputs = [client.put("a", [2, 4], "FP32", "r", 32), plain]
    outputs = [client.take("sum", "r", 32, 32), client.module.InferRequestedOutput("difference")]
    answer = client.calls.infer("sums", inputs, outputs=outputs)
    np.testing.assert_array_equal(given.read(np.float32, [2, 4], 32), A + B)
    np.testing.assert_array_equal(answer.as_numpy("difference"), A - B)


@BOTH
def test_a_region_may_begin_inside_an_object(client: Client, memory: MakeMemory) -> None:
    given = memory(100)
    given.write(A[0], 48)
    client.calls.register_system_shared_memory("r", given.key, 52, offset=40)
    answer = client.calls.infer("echo", [client.put("x", [4], "FP32", "r", 16, 8)])
    np.testing.assert_array_equal(answer.as_numpy("y"), A[0])


@BOTH
@pytest.mark.parametrize("count", [2, 20_000])
def test_texts_lie_in_a_region(client: Client, memory: MakeMemory, count: int) -> None:
    texts = np.array([b"", "Köper".encode()] * count, object)
    packed = serialize_byte_tensor(texts)
    nbytes = len(packed.item())
    given = memory(2 * nbytes)
    given.write(packed)
    client.calls.register_system_shared_memory("r", given.key, 2 * nbytes)
    client.calls.infer(
        "texts",
        [client.put("x", [2 * count], "BYTES", "r", nbytes)],
        outputs=[client.take("y", "r", nbytes, nbytes)],
    )
    np.testing.assert_array_equal(given.read(np.object_, [2 * count], nbytes), texts)


@BOTH
def test_large_tensors_lie_in_a_region(client: Client, memory: MakeMemory) -> None:
    array = np.arange(4_000_000, dtype=np.float32)
    given = memory(2 * array.nbytes)
    given.write(array)
    client.calls.register_system_shared_memory("r", given.key, 2 * array.nbytes)
    client.calls.infer(
        "echo",
        [client.put("x", [len(array)], "FP32", "r", array.nbytes)],
        outputs=[client.take("y", "r", array.nbytes, array.nbytes)],
    )
    np.testing.assert_array_equal(given.read(np.float32, [len(array)], array.nbytes), array)


@BOTH
def test_regions_are_told_and_forgotten(client: Client, memory: MakeMemory) -> None:
    given = memory(100)
    for name in ("one", "two", "three"):
        client.calls.register_system_shared_memory(name, given.key, 50, offset=10)
    assert names(client.calls.get_system_shared_memory_status()) == {"one", "two", "three"}
    assert names(client.calls.get_system_shared_memory_status("two")) == {"two"}
    client.calls.unregister_system_shared_memory("one")
    assert names(client.calls.get_system_shared_memory_status()) == {"two", "three"}
    with pytest.raises(InferenceServerException, match="'one'"):
        client.calls.get_system_shared_memory_status("one")
    client.calls.unregister_system_shared_memory()
    assert names(client.calls.get_system_shared_memory_status()) == set()


def test_both_protocols_see_the_same_regions(node: RunningNode, memory: MakeMemory) -> None:
    given = memory(100)
    with triton_grpc.InferenceServerClient(node.grpc) as client:
        client.register_system_shared_memory("r", given.key, 60, offset=30)
        told = node.http.get(f"{REGIONS}/region/r/status").json()
        assert told == [{"name": "r", "key": given.key, "offset": 30, "byte_size": 60}]
        node.http.post(f"{REGIONS}/unregister")
        assert names(client.get_system_shared_memory_status()) == set()


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


@pytest.fixture(scope="module")
def closed(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(MODELS)


def test_over_tcp_it_is_off_unless_the_operator_says_so(
    closed: RunningNode, memory: MakeMemory
) -> None:
    given = memory(100)
    http = Client(triton_http, f"127.0.0.1:{closed.port}")
    grpc = Client(triton_grpc, closed.grpc)
    assert closed.local.post(
        f"{REGIONS}/region/r/register", json={"key": given.key, "byte_size": 100}
    ).is_success
    for client in (http, grpc):
        with client.calls:
            for call in (
                lambda c=client: c.calls.register_system_shared_memory("s", given.key, 100),
                client.calls.get_system_shared_memory_status,
                client.calls.unregister_system_shared_memory,
                lambda c=client: c.calls.infer("echo", [c.put("x", [4], "FP32", "r", 16)]),
            ):
                with pytest.raises(InferenceServerException, match="shared_memory = true"):
                    call()
    assert "system_shared_memory" not in closed.http.get("/v2").json()["extensions"]
    assert closed.local.post(f"{REGIONS}/unregister").is_success


def test_over_the_sockets_it_is_on(closed: RunningNode, memory: MakeMemory) -> None:
    given = memory(100)
    given.write(A[0])
    assert "system_shared_memory" in closed.local.get("/v2").json()["extensions"]
    grpc = Client(triton_grpc, f"unix:{closed.home.folder / 'grpc.sock'}")
    with grpc.calls:
        grpc.calls.register_system_shared_memory("r", given.key, 100)
        answer = grpc.calls.infer("echo", [grpc.put("x", [4], "FP32", "r", 16)])
        np.testing.assert_array_equal(answer.as_numpy("y"), A[0])
    assert [r["name"] for r in closed.local.get(f"{REGIONS}/status").json()] == ["r"]


def test_regions_do_not_keep_a_node(start_node: StartNode, memory: MakeMemory) -> None:
    node, given = start_node(STEP), memory(100)
    node.local.post(f"{REGIONS}/region/r/register", json={"key": given.key, "byte_size": 100})
    node.signal(signal.SIGTERM)
    assert node.wait_ended() == 0
    assert given.path.exists()
