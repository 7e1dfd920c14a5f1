"""Speed of a cell over a plain one with the same bits, as the run's own rounds say (``comparisons`` of the summary)."""

from __future__ import annotations

from bench.records import CellSummary, Ratio, Summary
from reports.wording import NOTHING, times


def speed_over(summary: Summary, plain: str, cell: CellSummary) -> str:
    """``1.31× [1.29, 1.33]`` of the same thread count, with the verdict behind it where that is no clear one."""
    if plain == cell.variant:
        return "1"
    names = (f"{plain} x {cell.threads}", f"{cell.variant} x {cell.threads}")
    found = next((one for one in summary.comparisons if (one.a, one.b) == names), None)
    if found is None:
        return NOTHING
    # A comparison is of times.
    speed = Ratio(ratio=1 / found.ratio.ratio, lo=1 / found.ratio.hi, hi=1 / found.ratio.lo)
    return times(speed) if found.verdict in ("faster", "slower") else f"{times(speed)}, {found.verdict}"
