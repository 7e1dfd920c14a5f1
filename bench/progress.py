"""The progress line of a sweep, on standard error, with the time that is left."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn


class SweepProgress:
    """Shows what is running and about how long the rest will take; silent where standard error is no terminal."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[left]}"))
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("starting", total=None, left="")
        self._began: float | None = None
        self._done = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def gating(self, cell: str) -> None:
        """A cell is being gated."""
        self._bar.update(self._task, description=f"gate: {cell}")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def roofline(self, what: str) -> None:
        """The machine's roofline is being measured."""
        self._bar.update(self._task, description=f"roofline: {what}")

    def profiling(self, cell: str) -> None:
        """A cell tells where its time goes."""
        self._bar.update(self._task, description=f"profile: {cell}", total=None, left="")

    def soaking(self, cell: str, seconds: float) -> None:
        """A cell runs frame after frame."""
        self._bar.update(self._task, description=f"soak: {cell}", total=None, left=f"{seconds:.0f} s")

    def measuring(self, what: str, position: int, cells: int, rounds_left: int) -> None:
        """A worker starts, as number ``position`` of ``cells`` in a round; ``rounds_left`` counts this round."""
        if self._began is None:
            self._began = time.monotonic()
        total = self._done + (cells - position) + (rounds_left - 1) * cells
        left = ""
        if self._done:
            each_s = (time.monotonic() - self._began) / self._done
            seconds = each_s * (total - self._done)
            left = f"about {seconds / 60:.0f} min left" if seconds > 90 else f"about {seconds:.0f} s left"
        self._bar.update(self._task, description=what, total=total, completed=self._done, left=left)
        self._done += 1
