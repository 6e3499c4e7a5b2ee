"""A progress bar that costs the load generator nothing: it goes by the clock."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text


class ProgressDisplay:
    """Shows on a terminal what is being done and for how long; elsewhere it is silent."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", justify="right"),
            _ElapsedBar(),
            _Seconds(),
            console=console,
            refresh_per_second=2,  # each refresh takes the interpreter from the generator
            transient=True,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def stage(self, text: str, seconds: float) -> None:
        """Say what begins now, and for about how many seconds."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(text, total=seconds)


class _ElapsedBar(BarColumn):
    def render(self, task: Task) -> ProgressBar:
        elapsed, total = task.elapsed or 0.0, task.total or 1.0
        return ProgressBar(total=total, completed=min(elapsed, total), width=self.bar_width)


class _Seconds(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.elapsed or 0:.0f} of {task.total or 0:.0f} s")
