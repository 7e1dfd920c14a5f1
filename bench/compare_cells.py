"""Two cells of one run, compared round by round."""

from __future__ import annotations

from collections.abc import Iterable

from bench.comparison import LEAST_CHANGE, compare
from bench.records import CellRecord, Comparison
from bench.stats import paired_logs
from bench.timed_rounds import Key, rounds_of, timed_records


def name_of(key: Key) -> str:
    """``kv_bf16 x 2``."""
    return f"{key[0]} x {key[1]}"


def compare_within(
    records: Iterable[CellRecord],
    a: Key,
    b: Key,
    *,
    least_change: float = LEAST_CHANGE,
    noise: float | None = None,
) -> Comparison | None:
    """What may be said of cell ``b`` beside cell ``a`` of the same run.

    Args:
        records: of the run.
        a: name and threads of what it is compared with.
        b: name and threads of what is judged.
        least_change: the share that a change must exceed.
        noise: the run's A/A noise, where it was measured.

    Returns:
        None where one has no times, or they have no round in common.
    """
    timed = timed_records(records)
    if a not in timed or b not in timed:
        return None
    logs = paired_logs(rounds_of(timed[b]), rounds_of(timed[a]))
    if not len(logs):
        return None
    return compare(name_of(a), name_of(b), logs, least_change=least_change, noise=noise)
