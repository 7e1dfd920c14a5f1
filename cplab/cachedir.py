"""Where the lab keeps what it can make again: models made from a seed, oracle goldens, compiled kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
import psutil

from cplab.errors import CacheError, OutputRefusedError


def cache_dir() -> Path:
    """``$CPLAB_CACHE``, or the user's cache folder; not created here."""
    chosen = os.environ.get("CPLAB_CACHE")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("cplab", appauthor=False))


@contextmanager
def writing_to_cache(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write ``path`` into one line with what to do: CacheError."""
    try:
        yield
    except OSError as error:
        raise CacheError(
            f"{path}: the cache cannot be written: {error.strerror or error}; "
            "set CPLAB_CACHE to a folder with a gigabyte of room"
        ) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside ``path``; rename it onto ``path`` on success, remove it on any failure.

    A reader therefore sees the old file, the new file or none, never half of one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_orphans(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: Path) -> None:
    """Raise OutputRefusedError unless ``path`` can be written: asked before anything is computed."""
    try:
        with replacing(path.with_name(f"{path.name}.probe")) as temporary:
            temporary.touch()
        path.with_name(f"{path.name}.probe").unlink()
    except OSError as error:
        raise OutputRefusedError(
            f"{path}: cannot be written: {error.strerror or error}; choose another place"
        ) from error


def _remove_orphans(path: Path) -> None:
    """Delete what writers that were killed left beside ``path``."""
    for orphan in path.parent.glob(f".{path.name}.*.tmp"):
        pid = orphan.name.removesuffix(".tmp").rpartition(".")[2]
        if pid.isdecimal() and not psutil.pid_exists(int(pid)):
            orphan.unlink(missing_ok=True)
