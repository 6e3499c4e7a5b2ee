"""Plays one scenario in one mode, and says what came of it."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from treadle.bench.colocation.workloads import Scale
from treadle.bench.machine import command_line, describe_machine, versions
from treadle.bench.mix.node import MixNode
from treadle.bench.mix.outcome import (
    Run,
    Sample,
    ServiceFigures,
    TrainerFigures,
    power_joules,
    read_arrays,
    service_figures,
    settled_seconds,
    trainer_figures,
)
from treadle.bench.mix.plays import Play, configuration, submission_words
from treadle.bench.mix.server import DRAIN_SECONDS
from treadle.bench.results import date_now
from treadle.errors import TreadleError

START_SECONDS = {Scale.FULL: 50.0, Scale.TINY: 10.0}
"""About how long services and trainers take until all of them run, one after the other."""
END_SECONDS = 10.0
_MOST_START_SECONDS = 240.0
_LEAD_SECONDS = 1.0
"""From telling the services when to begin until that."""
_REST_SECONDS = {Scale.FULL: 3.0, Scale.TINY: 0.2}
"""Until what was launched to get ready is done."""
_ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
_MILLI = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What holds for every play."""

    device: str = "cuda"
    scale: Scale = Scale.FULL
    seed: int = 1
    cooperative: bool = False


def play_seconds(play: Play, scale: Scale) -> float:
    """About how long a play takes, from the start of its node to the end of everything."""
    return START_SECONDS[scale] + play.seconds + END_SECONDS


def perform(play: Play, settings: Settings, deadline: float, say: Callable[[str], None]) -> Run:
    """Play; what fails is a run without figures, that says why.

    Args:
        play: What is played.
        settings: Which models, and where.
        deadline: Monotonic time after which nothing is waited for.
        say: Told what is being done.
    """
    machine, date = describe_machine(), date_now()
    fields: dict[str, Any] = {"device": settings.device}
    limit = _MOST_START_SECONDS + play.seconds + DRAIN_SECONDS
    try:
        with MixNode(min(deadline, time.monotonic() + limit)) as node:
            fields |= _Performance(play, settings, node, say, limit).run()
    except (TreadleError, OSError, TimeoutError) as error:
        fields |= {"failed": str(error) or type(error).__name__}
    return Run(
        scenario=play.scenario,
        mode=play.mode,
        date=date,
        command=command_line(),
        machine=machine,
        versions=versions(),
        scale=str(settings.scale),
        seed=settings.seed,
        seconds=play.seconds,
        cooperative=settings.cooperative,
        **fields,
    )


class _Performance:
    """One play under way."""

    def __init__(
        self,
        play: Play,
        settings: Settings,
        node: MixNode,
        say: Callable[[str], None],
        limit: float,
    ) -> None:
        self._play, self._settings, self._node, self._say = play, settings, node, say
        self._limit = limit
        self._jobs: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        """Everything, in its order; the fields of a run."""
        play, node = self._play, self._node
        ports = _free_ports(len(play.services))
        on_gpu = self._settings.device != "cpu"
        if on_gpu:
            node.need_gate()
        node.start(self._configuration(ports))
        began = time.monotonic()
        node.wait(self._are_healthy, f"the services are healthy ({self._ill()})")
        for name in play.trainers:
            words = submission_words(
                name, node.out, scale=self._settings.scale, device=self._settings.device
            )
            self._jobs[name] = node.submit(["--time-limit", f"{self._limit:.0f}s", *words])
        node.wait(self._do_train, "the trainers train")
        if play.knobs and on_gpu:
            node.treadle(
                "turnstile", *(w for k, v in play.knobs.items() for w in ("--set", f"{k}={v}"))
            )
        time.sleep(_REST_SECONDS[self._settings.scale])
        self._say(f"all run after {time.monotonic() - began:.0f} s")
        return self._measure(ports)

    def _measure(self, ports: list[int]) -> dict[str, Any]:
        play, node = self._play, self._node
        zero = time.monotonic() + _LEAD_SECONDS
        for port in ports:
            _start_load(port, zero)
        time.sleep(max(0.0, zero - time.monotonic()))
        gpu = _gpu_in_use(node.status())
        before, samples = self._counted_joules(gpu), []
        for second in range(play.seconds + 1):
            time.sleep(max(0.0, zero + second - time.monotonic()))
            samples.append(sample_of(node.status(), gpu, time.monotonic() - zero))
        after = self._counted_joules(gpu)
        files = [node.out / f"{one.name}.npz" for one in play.services]
        node.wait(lambda: all(file.exists() for file in files), "the services have written")
        for number in self._jobs.values():
            node.cancel(number)
        node.wait(lambda: all(self._is_over(n) for n in self._jobs.values()), "the trainers end")
        energy, source = None, "the devices tell neither energy nor power"
        if before is not None and after is not None:
            energy, source = after - before, "the counter"
        elif (drawn := power_joules(samples)) is not None:
            energy, source = drawn, "power"
        return {
            "device": _device_name(node.status(), gpu) or self._settings.device,
            "services": self._services(),
            "trainers": self._trainers(zero),
            "samples": samples,
            "settled_seconds": settled_seconds(samples) if play.steered else None,
            "energy_joules": energy,
            "energy_from": source,
        }

    def _configuration(self, ports: list[int]) -> str:
        settings = self._settings
        return configuration(
            self._play,
            ports,
            self._node.out,
            scale=settings.scale,
            device=settings.device,
            seed=settings.seed,
            cooperative=settings.cooperative,
            limit_seconds=self._limit,
        )

    def _services(self) -> list[ServiceFigures]:
        return [
            service_figures(
                one.name,
                one.model,
                one.rate,
                [str(burst) for burst in one.bursts],
                one.p99_seconds,
                self._play.seconds,
                read_arrays(self._node.out / f"{one.name}.npz"),
            )
            for one in self._play.services
        ]

    def _trainers(self, zero: float) -> list[TrainerFigures]:
        found = []
        for name, number in self._jobs.items():
            file = self._node.out / f"{name}.npz"
            if not file.exists():
                raise TreadleError(f"{name} wrote nothing:\n{self._node.output(number)}")
            found.append(trainer_figures(name, zero, self._play.seconds, read_arrays(file)))
        return found

    def _are_healthy(self) -> bool:
        services = self._node.status()["jobs"]["services"]
        for one in services:
            if one["health"] in ("ended", "unhealthy"):
                last = "" if one["job"] is None else self._node.output(one["job"])
                raise TreadleError(f"{one['name']} is {one['health']}: {one['reason']}\n{last}")
        well = [one for one in services if one["health"] == "healthy"]
        return len(well) == len(self._play.services)

    def _ill(self) -> str:
        return ", ".join(one.name for one in self._play.services) or "none"

    def _do_train(self) -> bool:
        return all(self._does_train(number) for number in self._jobs.values())

    def _does_train(self, number: int) -> bool:
        if self._is_over(number):
            reason = self._node.job(number)["reason"]
            raise TreadleError(f"job {number} ended: {reason}\n{self._node.output(number)}")
        progress = self._node.job(number).get("progress")
        return bool(progress and progress["samples"])

    def _is_over(self, number: int) -> bool:
        return self._node.job(number)["state"] in ("finished", "failed", "cancelled", "lost")

    def _counted_joules(self, gpu: str | None) -> float | None:
        """What the GPU's energy counter stands at; None if it has none."""
        return joules_on(self._node.metrics(), gpu)


def joules_on(page: str, gpu: str | None) -> float | None:
    """What a GPU's energy counter stands at on the node's Prometheus page; None if it has none."""
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            if sample.name == _ENERGY and sample.labels["UUID"] == gpu:
                return sample.value * _MILLI
    return None


def sample_of(status: Mapping[str, Any], gpu: str | None, at: float) -> Sample:
    """What a status says of a GPU, its controller first."""
    devices = {one["uuid"]: one["readings"]["power"] for one in status["monitor"]["devices"]}
    power = None if gpu is None else devices.get(gpu)
    for one in status["jobs"]["control"]:
        if one["uuid"] == gpu:
            return Sample(
                at=at,
                level=one["level"],
                action=one["action"],
                reason=one["trouble"] or one["reason"],
                knobs={knob["name"]: knob["value"] for knob in one["knobs"]},
                power_watts=power,
            )
    return Sample(at=at, power_watts=power)


def _gpu_in_use(status: Mapping[str, Any]) -> str | None:
    """The UUID of the GPU on which the programs are; None if they are on none."""
    used = [uuid for job in status["jobs"]["placed"] for uuid in job["devices"] if uuid != "cpu"]
    if len(set(used)) > 1:
        raise TreadleError(f"the programs are on several GPUs: {', '.join(sorted(set(used)))}")
    return used[0] if used else None


def _device_name(status: Mapping[str, Any], gpu: str | None) -> str:
    names = {one["uuid"]: str(one["name"]) for one in status["monitor"]["devices"]}
    return "" if gpu is None else names[gpu]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, held all at once so that they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _start_load(port: int, zero: float) -> None:
    body = json.dumps({"zero": zero}).encode()
    address = f"http://127.0.0.1:{port}/start"
    with urllib.request.urlopen(address, body, timeout=_LEAD_SECONDS * 5):
        pass
