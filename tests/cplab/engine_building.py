"""The example engine and wrong ones, compiled by the system's C compiler."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

import cplab.external

_SOURCES = Path(cplab.external.__file__).parent
COMPILER = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)

#: In the order of faulty_engine.c.
FAULTS = [
    "no_logits",
    "no_predict",
    "null_load",
    "returns_7",
    "wrong",
    "out_of_range",
    "one_more",
    "more_logits",
    "nothing",
    "stale",
    "segfault",
    "hang",
    "not_finite",
    "late_segfault",
]

needs_compiler = pytest.mark.skipif(
    COMPILER is None, reason="no C compiler (cc, gcc, clang) here to build engines with"
)


@cache
def library(folder: Path, fault: str = "") -> Path:
    """``libFAULT.so`` in a folder, or the right one, ``libright.so``."""
    path = folder / f"lib{fault or 'right'}.so"
    source = Path(__file__).parent / "faulty_engine.c" if fault else _SOURCES / "example_engine.c"
    return _compiled(source, path, "-shared", "-fPIC", *([f"-DFAULT={FAULTS.index(fault) + 1}"] if fault else []))


@cache
def program(folder: Path) -> Path:
    """The right one as a program."""
    return _compiled(_SOURCES / "example_engine.c", folder / "engine", "-DCP_PROGRAM")


def _compiled(source: Path, path: Path, *options: str) -> Path:
    flags = ["-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O2", "-Wall", "-Wextra", "-Wno-unused", "-Werror"]
    command = [str(COMPILER), *flags, f"-I{_SOURCES}", *options, str(source), "-o", str(path), "-lm"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return path
