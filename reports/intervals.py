"""Every timed cell as a point with its 95 % interval, and the band in which nothing differs from the fastest exact one.

The band is as wide as a cell that was measured twice differs from itself (A/A): what lies within it is no difference.
Overlapping intervals decide nothing either way, as rounds are not paired here (`bench compare` pairs them).
"""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from bench.records import CellSummary, Repeatability, Summary
from reports.bar_drawing import Chart
from reports.interval_marks import interval_mark, plain_log_ticks
from reports.svg import FAINT, INK, MUTED, drawing, inline, new_axes
from reports.tables import in_order
from reports.verdict import describe, fastest
from reports.wording import bounds, difference, one_line, plural, significant, times

MOST_CELLS = 60
"""Cells drawn, the fastest ones; the table has all of them."""

_TOP, _BOTTOM = 26.0, 46.0


def interval_chart(summary: Summary) -> Chart | None:
    """Medians and intervals on a logarithmic axis; None where no cell has a time above zero."""
    cells = [cell for cell in in_order(summary.cells) if cell.cp_ms is not None and cell.cp_ms.min > 0][:MOST_CELLS]
    if not cells:
        return None
    with drawing():
        return Chart(
            wide=_draw(cells, summary, is_wide=True),
            narrow=_draw(cells, summary, is_wide=False),
            starred=any(cell.oversubscribed for cell in cells),
        )


def noise_sentence(summary: Summary) -> str:
    """What the A/A measurement found, or how to have one."""
    found = summary.repeatability
    if found is None:
        return "No cell was measured twice in this run (--aa), so its own noise is not known."
    return (
        f"A/A: {one_line(found.variant, 80)} on {plural(found.threads, 'thread')}, measured as if it were two cells, "
        f"came out at {times(found.ratio)} of itself over {plural(found.rounds, 'round')}: "
        f"differences of up to {difference(found.noise)} are this run's noise."
    )


def band_ms(summary: Summary) -> tuple[float, float] | None:
    """Within these bounds a median is not told from the fastest exact one's; None without an A/A or an exact cell."""
    noise: Repeatability | None = summary.repeatability
    best = fastest([cell for cell in summary.cells if cell.exact])
    if noise is None or best is None or best.cp_ms is None or best.cp_ms.p50 <= 0:
        return None
    return best.cp_ms.p50 / (1 + noise.noise), best.cp_ms.p50 * (1 + noise.noise)


def _draw(cells: list[CellSummary], summary: Summary, *, is_wide: bool) -> str:
    row = 24.0 if is_wide else 40.0
    longest = min(34, max(len(_label(cell)) for cell in cells))
    left, right = (24 + 7.8 * longest, 170.0) if is_wide else (10.0, 14.0)
    width = 1110.0 if is_wide else 340.0
    figure, axes = new_axes(width, _TOP + row * len(cells) + _BOTTOM, left, right, _TOP, _BOTTOM)
    intervals = [cell.cp_ms for cell in cells if cell.cp_ms is not None]
    band = band_ms(summary)
    low = min([found.lo for found in intervals] + ([band[0]] if band else []))
    high = max([found.hi for found in intervals] + ([band[1]] if band else []))
    axes.set_xscale("log")
    axes.set_xlim(low / 1.12, high * 1.12)
    axes.set_ylim(len(cells) - 0.5, -0.5)
    axes.set_yticks([])
    _log_ticks(axes, high / low, is_wide=is_wide)
    axes.grid(visible=True, axis="x")
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.set_xlabel("ms a frame, logarithmic", fontsize=13)
    if band:
        axes.axvspan(*band, color=FAINT, linewidth=0)
        axes.annotate(
            "A/A noise", ((band[0] * band[1]) ** 0.5, -0.5), xytext=(0, 5), textcoords="offset points", ha="center",
            fontsize=12, color=MUTED, annotation_clip=False,
        )  # fmt: skip
    for number, cell in enumerate(cells):
        _row(axes, cell, number, is_wide=is_wide)
    told = "; ".join(f"{_label(cell)}: {_figures(cell)} ms" for cell in cells)
    band_told = f"; noise band {bounds(*band)} ms" if band else ""
    name = f"intervals-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "Median and 95 % interval of every timed cell, ms a frame", told + band_told)


def _row(axes: Axes, cell: CellSummary, number: int, *, is_wide: bool) -> None:
    if cell.cp_ms is None:
        return
    at = number if is_wide else number + 0.2
    interval_mark(axes, cell.cp_ms.lo, cell.cp_ms.p50, cell.cp_ms.hi, at, exact=cell.exact)
    across = axes.get_yaxis_transform()
    shared: dict[str, Any] = {"transform": across, "va": "center", "fontsize": 13 if is_wide else 12, "color": INK}
    if is_wide:
        axes.text(-0.012, number, _label(cell), ha="right", **shared)
        axes.text(1.015, number, _figures(cell), **shared)
    else:
        above = number - 0.24
        axes.text(0.01, above, one_line(_label(cell), 24), **shared)
        axes.text(1.0, above, _figures(cell), ha="right", **shared)


def _log_ticks(axes: Axes, spread: float, *, is_wide: bool) -> None:
    """Plain numbers; the narrower the range, the more of them between powers of ten."""
    subs = (1, 2, 5) if spread > 8 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    if not is_wide and spread > 3:
        subs = (1, 2, 5)
    plain_log_ticks(axes, subs)


def _label(cell: CellSummary) -> str:
    return f"{one_line(cell.variant, 60)} × {cell.threads}{' *' if cell.oversubscribed else ''}"


def _figures(cell: CellSummary) -> str:
    if cell.cp_ms is None:
        return describe(cell)
    return f"{significant(cell.cp_ms.p50)} {bounds(cell.cp_ms.lo, cell.cp_ms.hi)}"
