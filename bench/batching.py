"""What batching gains at saturation: requests per second at ``max_batch`` 1 and 32.

``python bench/batching.py`` measures two models, each on two nodes that differ in ``max_batch``
only. The nodes run side by side and take turns: while one is measured, the other idles. Many
clients ask, each again as soon as it is answered.

``wide-layers`` is made here: layers whose weights exceed the processor's cache. One request
alone reads all of them from memory for little arithmetic; a batch reads them once for all.
``voice-activity`` is the quickstart's: a recurrent network of many small steps.

The results in ``bench/results/batching.json``, seconds and fractions as in
``treadle.bench.results``::

    format, date, command, machine, versions      as there
    clients, seconds, rounds
    models    by name
      unbatched, batched
        max_batch, requests_per_second (median of the rounds), rounds (of each),
        mean_batch (rows that ran together, warming up included),
        refused, failed (requests, over all rounds), cpu (of each round, as there)
      ratio   batched over unbatched, requests per second
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import uvloop
from msgspec import Struct
from onnx import TensorProto, helper, numpy_helper
from rich.table import Table

from treadle.bench.closedloop import ClosedRun, for_seconds, run_closed
from treadle.bench.cpu import CpuMeter, pids_of
from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.ownnode import OwnNode
from treadle.bench.results import CpuUse, Machine, date_now, save
from treadle.bench.traffic import Sender, read_traffic
from treadle.cli.measuring import report_console
from treadle.client.node import NodeClient
from treadle.errors import TreadleError

_HERE = Path(__file__).resolve().parent
_QUICKSTART = _HERE.parent / "examples" / "quickstart"
_RESULTS = _HERE / "results" / "batching.json"
_MAX_BATCHES = (1, 32)
_WIDTH, _LAYERS, _FEATURES, _CLASSES = 4096, 3, 256, 16

_TABLES = {
    "wide-layers": 'onnx = "wide-layers.onnx"',
    "voice-activity": f"""\
factory = "voice_activity:VoiceActivity"
env = {{ PYTHONPATH = '{_QUICKSTART}' }}
examples = ['{_QUICKSTART / "inputs" / "speech.wav"}']""",
}


class Side(Struct, frozen=True, kw_only=True):
    """One node."""

    max_batch: int
    requests_per_second: float
    rounds: tuple[float, ...]
    mean_batch: float
    refused: int
    failed: int
    cpu: tuple[CpuUse, ...]


class ModelResult(Struct, frozen=True, kw_only=True):
    """One model on both nodes."""

    unbatched: Side
    batched: Side
    ratio: float


class Document(Struct, frozen=True, kw_only=True):
    """Everything that was measured."""

    format: int = 1
    date: str
    command: str
    machine: Machine
    versions: dict[str, str]
    clients: int
    seconds: float
    rounds: int
    models: dict[str, ModelResult]


@dataclass(slots=True, eq=False)
class _Turns:
    client: NodeClient
    send: Sender
    max_batch: int
    pids: list[int]
    runs: list[ClosedRun] = field(default_factory=list)
    cpu: list[CpuUse] = field(default_factory=list)

    async def take(self, model: str, clients: int, seconds: float) -> None:
        enough, meter = for_seconds(seconds), CpuMeter(self.pids)
        names = itertools.takewhile(lambda _: not enough(), itertools.repeat(model))
        self.runs.append(await run_closed(self.send, names, clients))
        self.cpu.append(meter.use())

    async def side(self, model: str) -> Side:
        answer = await self.client.get(f"/v2/models/{model}/stats")
        counted = answer["model_stats"][0]
        rates = [run.requests_per_second for run in self.runs]
        return Side(
            max_batch=self.max_batch,
            requests_per_second=statistics.median(rates),
            rounds=tuple(rates),
            mean_batch=counted["inference_count"] / counted["execution_count"],
            refused=sum(run.refused for run in self.runs),
            failed=sum(run.failed for run in self.runs),
            cpu=tuple(self.cpu),
        )


def write_wide_layers(path: Path) -> None:
    """Write layers of 64 MiB each."""
    random = np.random.default_rng(0)
    sizes = [_FEATURES, *[_WIDTH] * (_LAYERS + 1), _CLASSES]
    nodes, weights, value = [], [], "features"
    for number, (rows, columns) in enumerate(itertools.pairwise(sizes)):
        weight = (random.random((rows, columns), np.float32) - 0.5) / float(np.sqrt(rows / 12))
        weights.append(numpy_helper.from_array(weight, f"weight{number}"))
        nodes += [
            helper.make_node("MatMul", [value, f"weight{number}"], [f"sum{number}"]),
            helper.make_node("Tanh", [f"sum{number}"], [f"value{number}"]),
        ]
        value = f"value{number}"
    graph = helper.make_graph(
        nodes,
        "wide-layers",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", _FEATURES])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", _CLASSES])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


async def measure_model(
    name: str, table: str, folder: Path, arguments: argparse.Namespace
) -> ModelResult:
    """Measure one model on both nodes, in turns."""
    async with contextlib.AsyncExitStack() as stack:
        sides = []
        for max_batch in _MAX_BATCHES:
            file = folder / f"{name}-{max_batch}.toml"
            settings = f"max_batch = {max_batch}\nqueue_limit = 4096"
            file.write_text(f'[[model]]\nname = "{name}"\n{table}\n{settings}\n')
            node = stack.enter_context(OwnNode(file))
            client = await stack.enter_async_context(NodeClient(node.socket, connections=0))
            await node.wait_ready(client)
            traffic = await read_traffic(client)
            pids = pids_of(await client.get("/treadle/v1/status"))
            turns = _Turns(client, Sender(client, traffic), max_batch, pids)
            await run_closed(turns.send, iter([name] * 2 * arguments.clients), arguments.clients)
            sides.append(turns)
        for number in range(arguments.rounds):
            for turns in sides:
                await turns.take(name, arguments.clients, arguments.seconds)
                rate = turns.runs[-1].requests_per_second
                text = f"{name}: max_batch {turns.max_batch}, round {number + 1}: {rate:.1f}/s"
                print(text, file=sys.stderr)
        unbatched, batched = [await turns.side(name) for turns in sides]
    ratio = batched.requests_per_second / unbatched.requests_per_second
    return ModelResult(unbatched=unbatched, batched=batched, ratio=ratio)


async def measure(arguments: argparse.Namespace) -> Document:
    date, machine = date_now(), describe_machine()
    models = {}
    with tempfile.TemporaryDirectory(prefix="treadle-") as name:
        folder = Path(name)
        write_wide_layers(folder / "wide-layers.onnx")
        for model, table in _TABLES.items():
            models[model] = await measure_model(model, table, folder, arguments)
    return Document(
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        clients=arguments.clients,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        models=models,
    )


def result_table(document: Document) -> Table:
    headings = ["MODEL", "MAX BATCH", "MEAN BATCH", "REQUESTS/s", "RATIO", "FAILED", "GENERATOR"]
    table = Table(*headings, "OTHERS", box=None, pad_edge=False, header_style="bold")
    for name, result in document.models.items():
        for side in (result.unbatched, result.batched):
            table.add_row(
                name,
                str(side.max_batch),
                f"{side.mean_batch:.1f}",
                f"{side.requests_per_second:.1f}",
                f"{result.ratio:.2f}x" if side is result.batched else "",
                str(side.refused + side.failed),
                f"{statistics.mean(use.generator_cores for use in side.cpu):.2f} cores",
                f"{statistics.mean(use.other_cores for use in side.cpu):.2f} cores",
            )
    return table


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what batching gains at saturation.")
    parser.add_argument("--clients", type=int, default=64, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--output", type=Path, default=_RESULTS, metavar="FILE")
    return parser.parse_args()


def main() -> int:
    """Run the comparison; give the exit status."""
    arguments = _arguments()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            document = runner.run(measure(arguments))
        save(document, arguments.output)
    except TreadleError as error:
        print(error, file=sys.stderr)
        return 1
    console = report_console()
    console.print(result_table(document), highlight=False)
    console.print(f"saved: {arguments.output}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
