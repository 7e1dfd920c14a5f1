"""What ``bench compare`` finds, whichever way it looked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.records import Comparison, Interval, Ratio

#: Exit codes beside those of every command: B is slower; or nothing was decided.
SLOWER, UNDECIDED = 4, 3


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """A cell on both sides: its time, or its speed beside its own run's baseline; and what may be said.

    Attributes:
        name: of the cell, where both sides have one of the same name; else of B's.
        a: figure of side A, as an interval or a ratio.
        b: figure of side B.
        found: None where the two sides say nothing about each other.
    """

    name: str
    a: Interval | Ratio | None
    b: Interval | Ratio | None
    found: Comparison | None


@dataclass(frozen=True, slots=True)
class Compared:
    """A comparison.

    Attributes:
        a: what side A is.
        b: what side B is.
        unit: of the cells' figures.
        cells: what was compared.
        notes: what a reader must know.
        wrong: what failed its gate or crashed, a line each.
        interrupted: not all rounds were measured.
        folder: where the records went, of a comparison that measured.
    """

    a: str
    b: str
    unit: str
    cells: list[ComparedCell]
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    interrupted: bool = False
    folder: Path | None = None
