"""Bar charts: ms a frame for each variant, and each cell's share of its roof.

Each chart is drawn twice, for wide and for narrow pages; the page shows the one that fits.
"""

from __future__ import annotations

from bench.records import CellSummary, Summary
from reports.bar_drawing import Bar, Chart, Line, bar_chart
from reports.svg import BUDGET, LIMIT, MUTED
from reports.tables import in_order
from reports.verdict import FRAME_MS, published_shape, talker_interval_ms
from reports.wording import bounds, one_line, percent, significant


def best_cells(summary: Summary) -> list[CellSummary]:
    """For each variant that passed and was timed, its fastest cell; fastest variant first."""
    best: dict[str, CellSummary] = {}
    for cell in in_order(summary.cells):
        if cell.cp_ms is not None:
            best.setdefault(cell.variant, cell)
    return list(best.values())


def frame_time_chart(summary: Summary) -> Chart | None:
    """Time a frame (ms) of each variant at its best thread count, with the real-time limits; None without a time."""
    bars = [
        Bar(
            label=_label(cell),
            value=cell.cp_ms.p50,
            text=f"{significant(cell.cp_ms.p50)} {bounds(cell.cp_ms.lo, cell.cp_ms.hi)}",
            exact=cell.exact,
            starred=cell.oversubscribed,
            low=cell.cp_ms.lo,
            high=cell.cp_ms.hi,
        )
        for cell in best_cells(summary)
        if cell.cp_ms is not None
    ]
    lines = _limits(summary) if published_shape(summary.model) else []
    return bar_chart("frame-ms", bars, lines, "ms a frame", "ms a frame for each variant at its best thread count")


def roof_chart(summary: Summary) -> Chart | None:
    """Each cell's share of its roof, percent; None where no cell has one."""
    bars = [
        Bar(
            label=f"{_label(cell)}{' (roof suspect)' if cell.roof_suspect else ''}",
            value=100 * cell.roof_fraction,
            text=percent(cell.roof_fraction),
            exact=cell.exact,
            starred=cell.oversubscribed,
        )
        for cell in in_order(summary.cells)
        if cell.roof_fraction is not None and cell.gate == "pass"
    ]
    bars.sort(key=lambda bar: -bar.value)
    roof = [Line(100.0, "the roof", LIMIT)]
    return bar_chart("roof", bars, roof, "% of the roof", "Share of the memory roof that each cell reaches")


def budget_sentence(summary: Summary) -> str:
    """What the limits in `frame_time_chart` are, and whose talker the CP's own budget comes from."""
    if not published_shape(summary.model):
        return "Real time is not drawn: this model is not of the published shape."
    talker, own = talker_interval_ms(summary)
    whose = (
        "this machine's talker" if own else f"the talker of another machine ({one_line(summary.reference.name, 80)})"
    )
    limit, step = f"{FRAME_MS:g} ms", f"{significant(talker.p50)} ms"
    if talker.p50 >= FRAME_MS:
        return f"Real time allows {limit} for talker and CP together, and {whose} alone takes {step}."
    left = significant(FRAME_MS - talker.p50)
    return (
        f"Real time allows {limit} for talker and CP together; {whose} takes {step} of it and leaves the CP {left} ms."
    )


def _limits(summary: Summary) -> list[Line]:
    talker, _ = talker_interval_ms(summary)
    budget = FRAME_MS - talker.p50
    lines = [Line(FRAME_MS, f"{FRAME_MS:g} ms: talker + CP", LIMIT)]
    if budget > 0:
        lines.append(Line(budget, f"{significant(budget)} ms: the CP's own budget", BUDGET, (6, 3)))
    other = summary.reference
    where = one_line(other.name.split(",")[0], 20)
    lines.append(Line(other.cp_ms, f"{significant(other.cp_ms)} ms: {where}, another machine", MUTED, (2, 3)))
    return lines


def _label(cell: CellSummary) -> str:
    return f"{one_line(cell.variant)} × {cell.threads}{' *' if cell.oversubscribed else ''}"
