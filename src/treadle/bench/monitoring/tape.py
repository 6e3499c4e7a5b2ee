"""Recording in the background, and the figures of a recording by time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from treadle.bench.monitoring.phases import Span
from treadle.errors import TreadleError
from treadle.monitor import Monitor
from treadle.monitor.recording import Part, Recorder

_BLOCK_SECONDS = 1.0
Values = npt.NDArray[np.float64]


class Tape:
    """Records what a monitor reads until the end of the block."""

    def __init__(self, monitor: Monitor, recorder: Recorder) -> None:
        self._monitor, self._recorder = monitor, recorder
        self._stop = threading.Event()
        self._error: TreadleError | None = None
        self._thread = threading.Thread(target=self._run, name="tape", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._stop.wait(_BLOCK_SECONDS)
            try:
                self._recorder.follow(self._monitor)
            except TreadleError as error:
                self._error = error
                return


class Column(NamedTuple):
    """The samples of one metric that have a value, the oldest first."""

    at: Values
    value: Values
    window: Values
    reasons: Sequence[str]
    """Why others have none."""


class Figures:
    """A device's samples in a part of a recording."""

    def __init__(self, part: Part, uuid: str) -> None:
        self.events = [event for event in part.events if event.device == uuid]
        self._columns: dict[str, Column] = {}
        for number, samples in part.samples.items():
            one = part.segment.series[number]
            if one.device != uuid:
                continue
            known = samples[samples["reason"] == 0]
            places = np.unique(samples["reason"][samples["reason"] > 0]).tolist()
            self._columns[one.metric] = Column(
                known["at"].astype(float),
                known["value"].astype(float),
                known["window"].astype(float),
                [part.reasons[place - 1] for place in places],
            )

    def column(self, metric: str) -> Column:
        """All samples of a metric; none, with the reason, if it was not read."""
        nothing = np.zeros(0)
        return self._columns.get(metric) or Column(nothing, nothing, nothing, ["it was not read"])

    def within(self, metric: str, spans: Iterable[Span], margin: float) -> Values:
        """The values that were measured inside spans, as far as that from their edges."""
        column = self.column(metric)
        inside = np.zeros(len(column.at), bool)
        for begin, end in spans:
            inside |= (column.at - column.window >= begin + margin) & (column.at <= end - margin)
        values: Values = column.value[inside]
        return values

    def growth(self, metric: str, span: Span) -> float | None:
        """How much a counter grew; None if it was not read before and after."""
        column = self.column(metric)
        before, after = column.at <= span[0], column.at <= span[1]
        if not after.any():
            return None
        first = column.value[before][-1] if before.any() else column.value[0]
        return float(column.value[after][-1] - first)
