"""A/A: one cell measured as two, and what a run shows for no difference at all.

A change between two cells is believed where it is larger than this. The two names take turns like any two cells, so
that the noise is that of the run's own comparisons: of processes, of the minutes between them, of the order.
"""

from __future__ import annotations

from collections.abc import Iterable

from bench.comparison import noise_of
from bench.records import CellRecord, Repeatability
from bench.stats import paired_logs, ratio_of_logs
from bench.timed_rounds import rounds_of, timed_records

_AGAIN = " (again)"


def twin_name(variant: str) -> str:
    """The second name of a variant that is measured twice."""
    return f"{variant}{_AGAIN}"


def repeatability(records: Iterable[CellRecord]) -> Repeatability | None:
    """The A/A noise of a run; None where no cell was measured twice in the same rounds, or went wrong."""
    timed = timed_records(records)
    for (_, threads), found in timed.items():
        original = found[0].twin_of
        if original and (original, threads) in timed:
            logs = paired_logs(rounds_of(found), rounds_of(timed[original, threads]))
            if len(logs):
                ratio = ratio_of_logs(logs)
                return Repeatability(
                    variant=original, threads=threads, rounds=len(logs), ratio=ratio, noise=noise_of(ratio)
                )
    return None
