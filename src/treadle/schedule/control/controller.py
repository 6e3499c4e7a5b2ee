"""One controller per GPU: it turns the turnstile's knobs by measured latencies.

It gives carefully (a small step, once some hundred requests have shown that there is room) and
takes back at once (half of the way, or all of it). Everything that it decides follows from the
observations and their times alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from treadle.schedule.control.ceiling import Ceiling
from treadle.schedule.control.decision import Action, ControlReport, Decision, TaskReport
from treadle.schedule.control.evidence import Standing
from treadle.schedule.control.knobs import DUTY, KnobError, Knobs, turnstile_knobs
from treadle.schedule.control.levels import GENEROUS, PROTECTIVE, USUAL, settings_at, stopped
from treadle.schedule.control.loadwatch import LoadWatch
from treadle.schedule.control.misses import MissBook
from treadle.schedule.control.observation import Observation
from treadle.schedule.control.promise import Outcome, Promise
from treadle.schedule.control.tuning import Tuning
from treadle.types import Priority


class Controller:
    """Decides the settings of one GPU's knobs."""

    def __init__(
        self,
        gpu: str,
        knobs: Knobs,
        *,
        minimum_duty_fraction: float = 0.01,
        tuning: Tuning | None = None,
    ) -> None:
        """Take the turnstile's knobs in ``knobs``, which are those of one GPU.

        Raises:
            KnobError: If another turns one of them, or the minimum duty is out of range.
        """
        self.owner = f"the controller of {gpu}"
        knobs.register(*turnstile_knobs(self.owner))
        if not knobs[DUTY].least <= minimum_duty_fraction <= 0.5:
            knobs.release(self.owner)
            raise KnobError(f"a minimum duty is 0 to 0.5, not {minimum_duty_fraction:g}")
        self.gpu, self._knobs, self._tuning = gpu, knobs, tuning or Tuning()
        self._minimum_duty = minimum_duty_fraction
        self._promises: dict[str, Promise] = {}
        self._misses = MissBook()
        self._ceiling = Ceiling(self._tuning)
        self._load = LoadWatch(self._tuning)
        self._level = USUAL
        self._equals_matter = self._classes_mixed = False
        self._settings = settings_at(USUAL, minimum_duty_fraction)
        self._proven = True
        self._alone: list[Promise] = []
        self._alone_since = 0.0
        self._blind_since: float | None = None
        self._neighbours: tuple[str, ...] | None = None
        self._now: float | None = None
        self._last = Decision(
            at=0.0,
            action=Action.HOLD,
            level=USUAL,
            settings=MappingProxyType(dict(self._settings)),
            changed={},
            reason="nothing has been observed yet",
        )
        self._last_change: Decision | None = None

    @property
    def last(self) -> Decision:
        """The decision of the last step."""
        return self._last

    def report(self) -> ControlReport:
        """Why the knobs are as they are, and how the objectives fare."""
        return ControlReport(
            gpu=self.gpu,
            last=self._last,
            last_change=self._last_change,
            tasks=tuple(
                TaskReport(
                    task=task,
                    objective_seconds=promise.objective_seconds,
                    standing=promise.verdict.standing,
                    words=promise.verdict.words,
                    misses=self._misses.of(task),
                    impossible=promise.impossible,
                )
                for task, promise in self._promises.items()
            ),
        )

    def step(self, observation: Observation, now: float) -> Mapping[str, float]:
        """Every knob's value from now on, by name, in its unit. To be called every 50 ms."""
        now = now if self._now is None else max(now, self._now)
        self._follow(observation, now)
        self._heed_neighbours(observation.neighbours, now)
        risen = self._load.rose(observation.gate.critical_busy_fraction, now)
        for promise in self._promises.values():
            promise.judge(now)
        if not self._promises:
            duty = f"{self._minimum_duty:.0%}"
            self._alone = []
            self._go(USUAL, Action.PROTECT, f"no objective: lower work has at least {duty}", now)
        elif self._alone:
            self._go_on_alone(now)
        elif risen is not None and self._level > USUAL:
            words = f"urgent work's load rose from {risen[0]:.0%} to {risen[1]:.0%}"
            self._go(USUAL, Action.FALL_BACK, words, now)
        else:
            self._decide(observation, now)
        self._now = now
        return self._last.settings

    def _follow(self, observation: Observation, now: float) -> None:
        """Take in the tasks that have an objective, and forget those that have gone."""
        self._misses.saw(observation.neighbours, now)
        followed: dict[str, Promise] = {}
        classes = {one.priority for one in observation.tasks} - {Priority.BACKGROUND}
        self._classes_mixed = len(classes) > 1
        self._equals_matter = False
        for one in observation.tasks:
            seconds = one.objective.p99_seconds
            if seconds is None or one.priority is Priority.BACKGROUND:
                continue
            promise = self._promises.get(one.task)
            if promise is None or promise.objective_seconds != seconds:
                promise = Promise(seconds, self._tuning, now)
            followed[one.task] = promise
            self._equals_matter |= one.priority is Priority.NORMAL
            if (window := promise.evidence.take(one.latency, now)) is not None:
                self._misses.add(one.task, window)
        self._misses.keep(frozenset(followed))
        self._promises = followed
        still = () if self._classes_mixed else tuple(followed.values())
        self._alone = [one for one in self._alone if one in still]

    def _heed_neighbours(self, neighbours: tuple[str, ...] | None, now: float) -> None:
        """What was learned was learned beside others: with new ones it is no longer known."""
        if neighbours is not None and self._neighbours is not None:
            if set(neighbours) - set(self._neighbours):
                self._ceiling.forget()
                self._level = min(self._level, USUAL)
                self._start_anew(now)
            elif bool(neighbours) != bool(self._neighbours):
                self._start_anew(now)
        self._neighbours = neighbours if neighbours is not None else self._neighbours

    def _decide(self, observation: Observation, now: float) -> None:
        steering = [one for one in self._promises.values() if one.steers]
        cap = min(self._cap(one) for one in self._promises.values())
        missed = [one for one in steering if one.verdict.standing is Standing.MISSED]
        nearly = [one for one in steering if one.verdict.standing is Standing.NEARLY]
        known = [one for one in steering if one.verdict.standing is not Standing.UNKNOWN]
        all_met = bool(known) and all(one.verdict.standing is Standing.MET for one in known)
        self._proven |= all_met
        helpless = observation.nobody_else or self._level <= PROTECTIVE
        longest = max((one.missed_for(now, helpless=helpless) for one in steering), default=0.0)
        if missed and helpless:
            self._bear(missed, longest, now, alone=observation.nobody_else)
        elif missed:
            self._back_off(missed, now)
        elif nearly and self._level > PROTECTIVE and not observation.nobody_else:
            self._fail(now)
            level = max(PROTECTIVE, self._level - self._tuning.step_nearly)
            self._go(level, Action.BACK_OFF, self._say(nearly), now)
        elif self._level > cap:
            self._go(cap, Action.FALL_BACK, self._say_cap(), now)
        elif not known:
            self._grope(cap, now)
        elif all_met:
            self._give(cap, observation, now)
        else:
            self._go(self._level, Action.HOLD, self._say(known), now)
        if known:
            self._blind_since = None

    def _cap(self, promise: Promise) -> float:
        """The highest level that one objective leaves."""
        if promise.outcome is not Outcome.OPEN:
            return PROTECTIVE
        told = promise.verdict.standing is not Standing.UNKNOWN and promise.evidence.counted
        return GENEROUS if told else USUAL

    def _back_off(self, missed: list[Promise], now: float) -> None:
        self._fail(now)
        level = self._level * self._tuning.back_off_factor
        if level < self._tuning.back_off_floor or any(one.verdict.severe for one in missed):
            level = PROTECTIVE
        self._go(level, Action.BACK_OFF, self._say(missed), now)

    def _fail(self, now: float) -> None:
        """This level was too much, if it is the first that failed since objectives were met."""
        if self._proven:
            self._ceiling.failed(self._level, now)
        self._proven = False

    def _bear(self, missed: list[Promise], longest: float, now: float, *, alone: bool) -> None:
        """Nothing more protects: after a while, find out whether it can be met at all."""
        words = self._say(missed)
        if longest < self._tuning.missing_seconds:
            where = "though nothing else is there" if alone else "at the most protective settings"
            self._go(self._level, Action.HOLD, f"missed {where}: {words}", now)
        elif alone:
            for one in missed:
                one.conclude(now, timeout=True)
            self._go(min(self._level, USUAL), Action.HOLD, self._say_impossible(), now)
        elif self._classes_mixed:
            for one in missed:
                one.give_up("normal work would have to stop", now)
            self._go(self._level, Action.HOLD, self._say_impossible(), now)
        else:
            self._alone, self._alone_since = missed, now
            self._set(stopped(), Action.TRY_ALONE, f"to see what it takes alone: {words}", now)

    def _go_on_alone(self, now: float) -> None:
        timeout = now - self._alone_since >= self._tuning.alone_most_seconds
        self._alone = [one for one in self._alone if not one.conclude(now, timeout=timeout)]
        if self._alone:
            self._set(stopped(), Action.TRY_ALONE, self._say(self._alone), now)
            return
        level = min((self._cap(one) for one in self._promises.values()), default=USUAL)
        self._go(min(level, USUAL), Action.FALL_BACK, self._say_impossible(), now)

    def _grope(self, cap: float, now: float) -> None:
        """Nothing is known: towards the usual level, slowly where it is below."""
        if self._blind_since is None:
            self._blind_since = now
        told = self._say(list(self._promises.values()))
        reason = "; ".join(filter(None, (self._say_impossible(), told)))
        level = min(USUAL, cap)
        waited = now - self._blind_since - self._tuning.recover_seconds
        if self._level < level and waited < 0:
            level = self._level
        elif self._level < level:
            level = min(level, self._level + self._tuning.step_blind)
            self._blind_since += 1.0
        self._go(level, Action.FALL_BACK if level != self._level else Action.HOLD, reason, now)

    def _give(self, cap: float, observation: Observation, now: float) -> None:
        words = self._say([one for one in self._promises.values() if one.steers])
        limit = min(cap, self._ceiling.limit(now))
        if observation.nothing_wanted:
            self._go(self._level, Action.HOLD, "met, and there is nobody to give to", now)
        elif self._level >= limit:
            why = self._say_cap() if limit >= cap else self._ceiling.words(now)
            why = "there is no more to give" if limit >= 1.0 else why
            self._go(self._level, Action.HOLD, f"{why}; {words}", now)
        else:
            tuning = self._tuning
            step = tuning.step_up_below_usual
            if self._level >= USUAL or self._ceiling.is_near(self._level + step):
                step = tuning.step_up
            most = limit if self._level >= USUAL else min(limit, USUAL)
            self._go(min(most, self._level + step), Action.GIVE, words, now)

    def _go(self, level: float, action: Action, reason: str, now: float) -> None:
        self._level = level
        wanted = settings_at(
            level,
            self._minimum_duty,
            equals_matter=self._equals_matter,
            classes_mixed=self._classes_mixed,
        )
        self._set(wanted, action, reason, now)

    def _set(self, wanted: Mapping[str, float], action: Action, reason: str, now: float) -> None:
        before = self._settings
        self._settings = self._knobs.turned(before, wanted)
        changed = {
            name: (before[name], value)
            for name, value in self._settings.items()
            if before[name] != value
        }
        self._last = Decision(
            at=now,
            action=action,
            level=self._level,
            settings=MappingProxyType(dict(self._settings)),
            changed=MappingProxyType(changed),
            reason=reason,
        )
        if changed:
            self._last_change = self._last
            self._start_anew(now)

    def _start_anew(self, now: float) -> None:
        for promise in self._promises.values():
            promise.evidence.reset(now)

    def _say(self, promises: list[Promise]) -> str:
        names = {id(promise): task for task, promise in self._promises.items()}
        return "; ".join(f"{names[id(one)]}: {one.verdict.words}" for one in promises)

    def _say_cap(self) -> str:
        told = [one for one in self._promises.values() if self._cap(one) < 1.0 and one.steers]
        return "; ".join(filter(None, (self._say(told), self._say_impossible())))

    def _say_impossible(self) -> str:
        return "; ".join(
            f"{task}: {one.impossible}" for task, one in self._promises.items() if one.impossible
        )
