"""Who goes first. Orders are read from what the models wrote down, never from the clock."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from .bodies import error, infer, result
from .conftest import StartNode
from .nodes import RunningNode, wait_until

CONFIGURATION = """
[schedule]
policy = "priority"

[[model]]
name = "blocker"
factory = "steps:Step"
priority = "critical"
worker = "critical"

[[model]]
name = "critical"
factory = "steps:Step"
priority = "critical"

[[model]]
name = "normal"
factory = "steps:Step"
priority = "normal"

[[model]]
name = "background"
factory = "steps:Step"
priority = "background"
"""


@pytest.fixture(scope="module")
def shared(start_shared_node: StartNode) -> RunningNode:
    return start_shared_node(CONFIGURATION)


@pytest.fixture
def node(shared: RunningNode) -> RunningNode:
    shared.forget_what_ran()
    return shared


@pytest.fixture
def fifo(start_node: StartNode) -> RunningNode:
    return start_node(CONFIGURATION, "--policy", "fifo")


class Line:
    """Requests sent one by one, each only once the one before it is in the queue."""

    def __init__(self, node: RunningNode, pool: ThreadPoolExecutor) -> None:
        self._node = node
        self._pool = pool
        self._waiting: dict[str, int] = {}
        self._sent: list[Future[httpx.Response]] = []

    def add(self, model: str, x: int, **parameters: object) -> None:
        self._sent.append(self._pool.submit(infer, self._node, model, x, **parameters))
        self._waiting[model] = self._waiting.get(model, 0) + 1
        self._node.wait_for_waiting(model, self._waiting[model])

    def results(self) -> list[int]:
        return [x for sent in self._sent for x in result(sent.result())]


def order(node: RunningNode, pool: ThreadPoolExecutor, *requests: tuple[str, int, object]) -> str:
    """The x in the order in which they ran, after they came in the order given.

    Each request is a model, its x and a priority; None leaves the priority out.
    """
    line = Line(node, pool)
    with node.shut("blocker"):
        blocking = pool.submit(infer, node, "blocker", 0)
        node.wait_for_run("blocker: 0")
        for model, x, priority in requests:
            line.add(model, x, **({} if priority is None else {"priority": priority}))
    assert line.results() == [x + 1 for _, x, _ in requests]
    assert result(blocking.result()) == [1]
    return " ".join(batch.rpartition(" ")[2] for batch in node.ran()[1:])


def test_urgent_requests_overtake_those_that_came_before(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    requests = [("background", 1, None), ("normal", 2, None), ("critical", 3, None)]
    assert order(node, pool, *requests) == "3 2 1"


def test_equal_requests_are_served_in_the_order_they_came(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    assert order(node, pool, *(("normal", x, None) for x in range(1, 7))) == "1 2 3 4 5 6"


def test_within_a_class_what_is_due_first_goes_first(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    line = Line(node, pool)
    with node.shut("blocker"):
        blocking = pool.submit(infer, node, "blocker", 0)
        node.wait_for_run("blocker: 0")
        for x, seconds in ((1, 50), (2, 30), (3, 40)):
            line.add("normal", x, timeout=seconds * 1_000_000)
    assert line.results() == [2, 3, 4]
    assert result(blocking.result()) == [1]
    assert node.ran()[1:] == ["normal: 2", "normal: 3", "normal: 1"]


def test_under_fifo_nothing_overtakes(fifo: RunningNode, pool: ThreadPoolExecutor) -> None:
    requests = [("background", 1, None), ("normal", 2, None), ("critical", 3, None)]
    assert order(fifo, pool, *requests) == "1 2 3"


@pytest.mark.parametrize("lowered", [3, 17, "background", "BACKGROUND"])
def test_a_client_can_lower_its_models_class(
    node: RunningNode, pool: ThreadPoolExecutor, lowered: object
) -> None:
    requests = [("critical", 1, lowered), ("normal", 2, None), ("critical", 3, None)]
    assert order(node, pool, *requests) == "3 2 1"


@pytest.mark.parametrize("raised", [1, "critical"])
def test_a_client_cannot_raise_its_models_class(
    node: RunningNode, pool: ThreadPoolExecutor, raised: object
) -> None:
    requests = [("background", 1, raised), ("normal", 2, raised), ("critical", 3, None)]
    assert order(node, pool, *requests) == "3 2 1"


def test_priority_zero_is_the_models_own(node: RunningNode, pool: ThreadPoolExecutor) -> None:
    requests = [("background", 1, 0), ("normal", 2, 0), ("critical", 3, 0)]
    assert order(node, pool, *requests) == "3 2 1"


def test_a_client_can_raise_its_class_where_that_is_allowed(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(
        CONFIGURATION.replace("[schedule]", "[schedule]\nclients_may_raise_priority = true")
    )
    requests = [("normal", 1, None), ("background", 2, 1)]
    assert order(node, pool, *requests) == "2 1"


@pytest.mark.parametrize("nonsense", [-1, 1.5, True, "urgent", ""])
def test_a_priority_that_is_none_is_refused(node: RunningNode, nonsense: object) -> None:
    text = error(infer(node, "normal", 1, priority=nonsense), 400)
    assert "priority" in text


def test_a_running_background_batch_does_not_hold_up_urgent_requests(
    node: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with node.shut("background"):
        running = pool.submit(infer, node, "background", 1)
        node.wait_for_run("background: 1")
        waiting = pool.submit(infer, node, "background", 2)
        node.wait_for_waiting("background", 1)
        assert result(infer(node, "critical", 3)) == [4]
        assert result(infer(node, "normal", 4)) == [5]
        assert not running.done()
        assert not waiting.done()
    assert result(running.result()) + result(waiting.result()) == [2, 3]
    assert node.ran() == ["background: 1", "critical: 3", "normal: 4", "background: 2"]


def test_under_fifo_a_running_background_batch_holds_up_everything(
    fifo: RunningNode, pool: ThreadPoolExecutor
) -> None:
    with fifo.shut("background"):
        running = pool.submit(infer, fifo, "background", 1)
        fifo.wait_for_run("background: 1")
        urgent = pool.submit(infer, fifo, "critical", 2)
        fifo.wait_for_waiting("critical", 1)
        assert fifo.ran() == ["background: 1"]
    assert result(running.result()) + result(urgent.result()) == [2, 3]


def test_background_is_served_under_a_flood_of_critical_requests(
    start_node: StartNode, pool: ThreadPoolExecutor
) -> None:
    node = start_node(
        CONFIGURATION.replace("[schedule]", "[schedule]\nage_limit_seconds = 0.2").replace(
            'name = "critical"', 'name = "critical"\nparameters = { seconds = 0.02 }'
        )
    )
    over: list[bool] = []

    def flood() -> int:
        answered = 0
        while not over:
            assert result(infer(node, "critical", 5)) == [6]
            answered += 1
        return answered

    # More than one at a time, so that an urgent request waits whenever one has been served.
    floods = [pool.submit(flood) for _ in range(4)]
    try:
        wait_until(lambda: node.model("critical")["answered"] >= 4, "the flood has begun")
        assert result(infer(node, "background", 7)) == [8]
        assert not any(flood.done() for flood in floods)
    finally:
        over.append(True)
    assert all(flood.result() for flood in floods)
