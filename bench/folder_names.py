"""Names of run folders: hidden while a run is written, its own when it ends, and never another run's."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil

_HIDDEN = re.compile(r"^\.(?P<name>.+?)\.(?P<pid>\d+)(\.\d+)?$")


def _numbered(path: Path, separator: str) -> Iterator[Path]:
    yield path
    for number in count(2):
        yield path.with_name(f"{path.name}{separator}{number}")


def fresh_sibling(final: Path) -> Path:
    """A new folder beside ``final``, its name starting with a dot."""
    for candidate in _numbered(final.with_name(f".{final.name}.{os.getpid()}"), "."):
        with suppress(FileExistsError):
            candidate.mkdir()
            return candidate
    raise AssertionError("numbers do not end")


def rename_to_free_name(folder: Path, wanted: Path) -> Path:
    """Rename without overwriting: an empty folder claims the name first, since only one process can make it."""
    for candidate in _numbered(wanted, "-"):
        try:
            candidate.mkdir()
        except FileExistsError:
            continue
        try:
            return folder.rename(candidate)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                with suppress(OSError):
                    candidate.rmdir()
                raise
    raise AssertionError("numbers do not end")


def final_name(hidden: Path) -> Path:
    """The name that a hidden folder is to get; the path itself where it is not hidden."""
    match = _HIDDEN.match(hidden.name)
    return hidden.with_name(match["name"]) if match else hidden


def is_hidden(folder: Path) -> bool:
    """Whether a folder has the name of a run that has not ended."""
    return _HIDDEN.match(folder.name) is not None


def has_owner(hidden: Path) -> bool:
    """Whether the process that writes a hidden folder lives; one of the same number counts as that process."""
    match = _HIDDEN.match(hidden.name)
    return match is not None and int(match["pid"]) != os.getpid() and psutil.pid_exists(int(match["pid"]))


def claim(hidden: Path) -> Path:
    """Make a hidden folder this process's own, in one step, so that only one process can have it.

    Raises:
        OSError: it is gone, or cannot be renamed.
    """
    for candidate in _numbered(hidden.with_name(f".{final_name(hidden).name}.{os.getpid()}"), "."):
        if candidate == hidden:
            return hidden
        if not candidate.exists():
            return hidden.rename(candidate)
    raise AssertionError("numbers do not end")
