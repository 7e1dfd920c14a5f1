"""Which records' times count, by cell and by round.

A cell that a run measures twice to learn its own noise (A/A) has two names here and one in the summary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from bench.records import CellRecord
from bench.stats import median_of_rounds

Key = tuple[str, int]
"""A cell's name and thread count."""
Rounds = dict[int, list[int]]
"""Samples, nanoseconds, by round."""


def timed_records(
    records: Iterable[CellRecord], phase: Literal["timed", "talker"] = "timed"
) -> dict[Key, list[CellRecord]]:
    """The records whose times count, by cell and in order of their rounds.

    A cell of which any record, of either phase, failed or crashed is left out as a whole; so is one without samples.

    Args:
        records: of a run.
        phase: ``timed`` for code predictors, ``talker`` for the talker.
    """
    kept: dict[Key, list[CellRecord]] = {}
    wrong: set[Key] = set()
    for record in sorted(records, key=when):
        key = (record.variant, record.threads)
        if record.gate.status in ("fail", "crash"):
            # What goes wrong under a cell's second name went wrong in the cell.
            wrong |= {key, (record.twin_of or record.variant, record.threads)}
        elif record.phase == phase and record.gate.status == "pass" and record.samples_ns:
            kept.setdefault(key, []).append(record)
    return {key: found for key, found in kept.items() if key not in wrong}


def when(record: CellRecord) -> tuple[bool, int, int]:
    """The order in which records came: the gate's, then round by round."""
    return record.phase not in ("gate", "talker_trial"), record.round, record.order


def rounds_of(timed: list[CellRecord]) -> Rounds:
    """Samples by round; a round that was measured again holds both measurements."""
    rounds: Rounds = {}
    for record in timed:
        rounds.setdefault(record.round, []).extend(record.samples_ns)
    return rounds


def baseline_rounds(timed: dict[Key, list[CellRecord]], baseline: str) -> Rounds:
    """The baseline's samples at its fastest thread count; empty where none passed."""
    candidates = [rounds_of(found) for (variant, _), found in timed.items() if variant == baseline]
    return min(candidates, key=lambda rounds: median_of_rounds(list(rounds.values())).p50, default={})
