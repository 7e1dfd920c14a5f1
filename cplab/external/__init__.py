"""Anybody's own engine as a variant: ``external:LIB.so`` (a shared library) or ``external:COMMAND`` (a program).

``cp_engine.h`` is the whole contract, of libraries and of programs; ``python -m bench engine-header`` prints it, and
with ``--example`` an engine in plain C, which the tests compile.
"""

from __future__ import annotations

from importlib.resources import files

HEADER, EXAMPLE = "cp_engine.h", "example_engine.c"


def shipped_text(name: str) -> str:
    """The text of `HEADER` or `EXAMPLE`."""
    return files("cplab.external").joinpath(name).read_text(encoding="utf-8")
