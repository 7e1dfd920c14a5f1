"""Compile every kernel ahead of its first use, with progress, once for each machine and version of the lab."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path

from numba import types
from numba.core import config
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from cplab import jit
from cplab.cachedir import cache_dir, writing_to_cache
from cplab.errors import VariantUnavailableError
from cplab.kernels import reading, sampling, stages, team, units

_PLAN = types.Array(types.int64, 1, "C")
_TABLE = types.Array(types.int64, 2, "C")
#: Names the files that were written when everything was compiled.
_MARKER = "complete.json"
_seconds: float | None = None


def steps() -> list[tuple[str, Callable[[], object]]]:
    """What there is to compile, in order, with what each is called."""
    return [
        ("matrix kernels", lambda: units.unit.address),
        ("drawing codes", lambda: sampling.draw.address),
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
    if config.DISABLE_JIT:
        raise VariantUnavailableError("NUMBA_DISABLE_JIT is set, and the kernels are compiled code: unset it")
    started = time.perf_counter()
    folder = jit.compiled_dir()
    # Kernels that lie whole in the cache are loaded when they are first called.
    if folder is None or not _whole(folder):
        with writing_to_cache(folder or cache_dir()):
            _compile()
            if folder is not None:
                (folder / _MARKER).write_text(json.dumps(_contents(folder)), encoding="utf-8")
    _seconds = time.perf_counter() - started
    return _seconds


def _compile() -> None:
    todo = steps()
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print("compiling kernels for this CPU (once, some 20 s) ...", highlight=False)
    label = TextColumn("compiling kernels for this CPU (once): {task.description}")
    columns = (label, BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(todo))
        for name, step in todo:
            bar.update(task, description=name)
            step()
            bar.advance(task)


def _contents(folder: Path) -> dict[str, str]:
    """A digest of every file of compiled kernels."""
    files = sorted(path for path in folder.rglob("*.nb[ic]") if path.parent.name.startswith("kernels_"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files}


def _whole(folder: Path) -> bool:
    """Whether all kernels are in the cache as they were written; a damaged cache is emptied."""
    try:
        written = json.loads((folder / _MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    found = _contents(folder)
    if all(found.get(name) == digest for name, digest in written.items()):
        return True
    for path in folder.rglob("*.nb[ic]"):
        path.unlink(missing_ok=True)
    return False
