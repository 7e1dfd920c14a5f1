"""Compile every kernel ahead of its first use, with progress, once for each machine and version of the lab."""

from __future__ import annotations

import time
from collections.abc import Callable

from numba import types
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cplab import jit
from cplab.kernels import reading, rows, stages, team

_PLAN = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")
_seconds: float | None = None


def steps() -> list[tuple[str, Callable[[], object]]]:
    """What there is to compile, in order, with what each is called."""
    return [
        ("matrix kernels", lambda: rows.unit.address),
        ("stages of a pass", lambda: stages.run_stage.address),
        ("one thread", lambda: team.frame_alone.compile((_PLAN,))),
        ("thread team", lambda: team.frame_together.compile((_PLAN, types.int64))),
        ("thread team, a launch a stage", lambda: team.frame_apart.compile((_PLAN, types.int64))),
        ("the roof, one thread", lambda: reading.read_alone.compile((_TABLE, types.int64, types.int64))),
        ("the roof, team", lambda: reading.read_together.compile((_TABLE, *[types.int64] * 3))),
    ]


def compile_seconds() -> float:
    """Seconds that this process has spent in `compile_all`; 0 where it was not called."""
    return _seconds or 0.0


def compile_all() -> float:
    """Compile, or load from the cache, every kernel; returns the seconds that it took in this process.

    The first use on a machine says so on standard error, with a progress bar; later ones are silent and fast.
    """
    global _seconds
    if _seconds is not None:
        return _seconds
    started = time.perf_counter()
    folder = jit.compiled_dir()
    marker = folder / "complete" if folder is not None else None
    todo = steps()
    if marker is None or not marker.exists():  # else each kernel comes from the cache when it is first called
        console = Console(stderr=True)
        if not console.is_terminal:
            console.print("compiling kernels for this CPU (once, some 20 s) ...", highlight=False)
        columns = (
            TextColumn("compiling kernels for this CPU (once): {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
        )
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
            task = bar.add_task("", total=len(todo))
            for name, step in todo:
                bar.update(task, description=name)
                step()
                bar.advance(task)
        if marker is not None:
            marker.touch()
    _seconds = time.perf_counter() - started
    return _seconds
