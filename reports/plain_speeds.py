"""Speeds of a cell over another, as the run's own rounds say (``comparisons`` and ``engines`` of the summary)."""

from __future__ import annotations

from bench.records import CellSummary, Comparison, Ratio, Summary
from reports.wording import NOTHING, times


def speed_of(found: Comparison) -> Ratio:
    """How fast ``b`` is beside ``a``: a comparison is of times, so that its ratio is the other way round."""
    return Ratio(ratio=1 / found.ratio.ratio, lo=1 / found.ratio.hi, hi=1 / found.ratio.lo)


def told_speed(found: Comparison) -> str:
    """``1.31× [1.29, 1.33]``, with the verdict behind it where that is no clear one."""
    speed = times(speed_of(found))
    return speed if found.verdict in ("faster", "slower") else f"{speed}, {found.verdict}"


def speed_over(summary: Summary, plain: str, cell: CellSummary) -> str:
    """`told_speed` of a cell over the plain one with its bits and thread count."""
    if plain == cell.variant:
        return "1"
    names = (f"{plain} x {cell.threads}", f"{cell.variant} x {cell.threads}")
    found = next((one for one in summary.comparisons if (one.a, one.b) == names), None)
    return NOTHING if found is None else told_speed(found)
