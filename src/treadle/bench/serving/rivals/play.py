"""Plays one play against another server: first which settings suit it best, then as treadle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from treadle.bench.loadtest.measure import Plan, Search, measure
from treadle.bench.loadtest.results import LoadTest
from treadle.bench.serving.plays import Play
from treadle.bench.serving.rivals.launch import RIVALS, Model, Rival, RivalProcess, packages_of
from treadle.bench.serving.rivals.sweep import Grid, Setting, Tried, best_of, next_to_try
from treadle.bench.serving.run import LOAD_SECONDS, Played, Settings, plan_of
from treadle.errors import TreadleError

_SWEEP_SECONDS = 2.0
_SWEEP_WARM_UP_SECONDS = 0.5
_SWEEP_PRECISION = 0.3
_SAFE_PART = 0.7
"""Of a rate that was found, at which the next search begins."""


async def play_rival(
    play: Play, name: str, settings: Settings, rate_factor: float, folder: Path, grid: Grid | None
) -> Played:
    """Find the best settings, then the highest rate with them.

    Args:
        play: What to play.
        name: Of the server.
        settings: As for treadle.
        rate_factor: Of all rates.
        folder: Holds the packages of the servers, each in a folder of its name.
        grid: What to try; None: what is usual for the server.

    Raises:
        TreadleError: If the server fails with its best settings.
    """
    rival = RIVALS[name]
    packages = packages_of(folder, rival)
    if packages is None:
        reason = f"{folder / rival.name} has no package {rival.package}"
        return Played(play=play.name, mode=name, test=None, left_out=reason)
    runner = _Runner(play, rival, packages, settings)
    start, tried = rival.start_part * rate_factor, list[Tried]()
    while (setting := next_to_try(grid or rival.grid, tried)) is not None:
        tried.append(await runner.short(setting, start))
        if best := best_of(tried).rate:
            start = _SAFE_PART * best / sum(model.rate for model in play.models)
    best_tried = best_of(tried)
    setup = f"{best_tried.setting}, {'JSON' if rival.json_bodies else 'binary'}"
    if best_tried.rate is None:
        failed = "" if any(not one.failed for one in tried) else best_tried.failed
        setup, test = "no rate held", None
    else:
        failed, test = "", await runner.whole(best_tried.setting, start)
    return Played(
        play=play.name, mode=name, test=test, setup=setup, tried=tuple(tried), failed=failed
    )


class _Runner:
    def __init__(self, play: Play, rival: Rival, packages: Path, settings: Settings) -> None:
        self._play = play
        self._rival = rival
        self._packages = packages
        self._settings = settings

    async def short(self, setting: Setting, rate_factor: float) -> Tried:
        """A short and coarse search; where it cannot be carried out, no rate holds."""
        try:
            test = await self._search(setting, rate_factor, short=True)
        except (TreadleError, OSError) as error:
            return Tried(setting=setting, rate=None, failed=str(error))
        return Tried(setting=setting, rate=test.found.rate if test.found else None)

    async def whole(self, setting: Setting, rate_factor: float) -> LoadTest:
        """The search that counts."""
        return await self._search(setting, rate_factor, short=False)

    async def _search(self, setting: Setting, rate_factor: float, *, short: bool) -> LoadTest:
        models = models_of(self._play, self._settings, setting)
        with RivalProcess(self._rival, self._packages, models, setting) as process:
            await process.wait_ready(LOAD_SECONDS)
            plan = self._plan(process.url, rate_factor)
            return await measure(_shortened(plan) if short else plan, lambda what, seconds: None)

    def _plan(self, url: str, rate_factor: float) -> Plan:
        plan = plan_of(self._play, self._settings, rate_factor, url=url)
        wanted = plan.wanted
        loads = tuple(replace(load, priority=None) for load in wanted.loads)
        wanted = replace(wanted, loads=loads, json_bodies=self._rival.json_bodies)
        return replace(plan, wanted=wanted)


def models_of(play: Play, settings: Settings, setting: Setting) -> Sequence[Model]:
    """What a server is told of the models."""
    return [
        {
            "name": model.name,
            "factory": model.factory,
            "device": settings.device,
            "tiny": settings.tiny,
            "max_batch": setting.max_batch,
        }
        for model in play.models
    ]


def _shortened(plan: Plan) -> Plan:
    assert plan.search is not None, "servers are compared by the rates that are found"
    return replace(
        plan,
        seconds=min(_SWEEP_SECONDS, plan.seconds),
        warm_up_seconds=min(_SWEEP_WARM_UP_SECONDS, plan.warm_up_seconds),
        search=Search(precision=_SWEEP_PRECISION, most=plan.search.most),
    )
