"""Tensors in system shared memory, as Triton's clients leave them there, over both protocols."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from tritonclient.utils import InferenceServerException, serialize_byte_tensor

from .conftest import StartNode
from .nodes import RunningNode
from .shared import BOTH, MODELS, OPEN, REGIONS, STEP, A, B, Client, MakeMemory


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
