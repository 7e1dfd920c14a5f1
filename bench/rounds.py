"""Rounds: in which order cells are measured, and which of them are worth another one.

A cell is settled when the 95 % interval of its median is narrower than 2 % of it after at least 6 rounds. Whether to go
on is asked of the interval's width alone and never of where it lies: a run that stopped as soon as a verdict came out
would find differences where there are none. The baseline goes on as long as anything does, so that ratios stay paired,
and a cell that is measured twice or compared with another goes on with it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from bench.cells import Cell
from bench.comparison import FEWEST_TO_JUDGE
from bench.options import Order, Pair
from bench.records import CellRecord, StreamRecord
from bench.stats import interval, paired_logs
from bench.stream_cells import rounds_of_streams
from bench.timed_rounds import Rounds, rounds_of, timed_records

#: An interval of this width, as a share, needs no more rounds.
NARROW = 0.02


def order_of_round(cells: Sequence[Cell], number: int, order: Order, seed: int) -> list[Cell]:
    """The cells of a round in the order in which they are measured; the same for the same round, seed and cells."""
    if order == "abba":
        return list(cells) if number % 2 == 0 else list(reversed(cells))
    return random.Random(f"{seed}/{number}").sample(list(cells), len(cells))


def settled(logs: NDArray[np.float64]) -> bool:
    """Whether logarithms ``[rounds]``, of a cell's times or of a pair's ratios, need no further round."""
    if len(logs) < FEWEST_TO_JUDGE:
        return False
    low, high = interval(logs)
    return high - low <= math.log1p(NARROW)


def worth_more(
    alive: Sequence[Cell],
    records: Iterable[CellRecord],
    *,
    baseline: str,
    together: Sequence[Cell] = (),
    pair: Pair | None = None,
    streams: Iterable[StreamRecord] = (),
) -> list[Cell]:
    """Which cells another round should measure, in the order of ``alive``; none where all are settled.

    Args:
        alive: cells that have not gone wrong.
        records: of the run so far.
        baseline: the variant that others are compared with; the fastest of its cells goes on with any other.
        together: cells of which none stops alone (A/A).
        pair: two cells whose ratio is all that is asked; then all go on until that is settled.
        streams: of the cells with several frames a call; the same cell with one goes on with them.
    """
    records = list(records)
    timed = timed_records(records) | timed_records(records, "talker")
    rounds = {cell: rounds_of(timed.get((cell.variant, cell.threads), [])) for cell in alive if cell.batch == 1}
    several = rounds_of_streams(streams)
    rounds |= {cell: several.get(cell, {}) for cell in alive if cell.batch > 1}
    if pair is not None:
        there = pair.a in rounds and pair.b in rounds
        return list(alive) if there and not settled(paired_logs(rounds[pair.b], rounds[pair.a])) else []
    wanted = {cell for cell in alive if not settled(_logs(rounds[cell]))}
    wanted |= {cell.single for cell in wanted} & set(alive)
    if wanted & set(together):
        wanted |= set(together)
    anchors = [cell for cell in alive if cell.variant == baseline and cell.batch == 1 and rounds[cell]]
    if wanted and anchors:
        wanted.add(min(anchors, key=lambda cell: median(_logs(rounds[cell]))))
    return [cell for cell in alive if cell in wanted]


def _logs(rounds: Rounds) -> NDArray[np.float64]:
    return np.array([math.log(median(samples)) for samples in rounds.values()])
