"""Milliseconds against bytes read a frame, of variants with the same bits, and the line that none can be below."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench.records import CellSummary
from reports.bar_drawing import Chart
from reports.interval_marks import interval_mark
from reports.label_places import Box, line_boxes, write_names
from reports.svg import GRID, INK, LIMIT, drawing, inline, new_axes
from reports.wording import one_line, significant

_TITLE = "Milliseconds and bytes read, a frame"


def unit_of(largest_bytes: float) -> tuple[str, float]:
    """``GB`` or ``MB``, and how many bytes that is."""
    return ("GB", 1e9) if largest_bytes >= 1e8 else ("MB", 1e6)


def bytes_chart(cells: Sequence[CellSummary], roof_gbps: float | None) -> Chart | None:
    """The plot of one team's cells; None where fewer than two have a time and bytes.

    Args:
        cells: with the same bits.
        roof_gbps: what the line's time is of; None for no line.
    """
    shown = [cell for cell in cells if cell.cp_ms is not None and cell.bytes_per_frame]
    if len(shown) < 2:
        return None
    with drawing():
        return Chart(_draw(shown, roof_gbps, is_wide=True), _draw(shown, roof_gbps, is_wide=False), starred=False)


def _draw(cells: Sequence[CellSummary], roof_gbps: float | None, *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 430 if is_wide else 340, 58 if is_wide else 46, 24, 14, 48)
    name, size = unit_of(max(cell.bytes_per_frame or 0 for cell in cells))
    placed = [((cell.bytes_per_frame or 0) / size, cell.cp_ms, cell) for cell in cells if cell.cp_ms is not None]
    right = 1.08 * max(x for x, _, _ in placed)
    axes.set_xlim(0, right)
    axes.set_ylim(0, 1.1 * max(ms.hi for _, ms, _ in placed))
    axes.grid(visible=True, color=GRID)
    axes.tick_params(labelsize=12, length=0, pad=6)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(nbins=8 if is_wide else 5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel(f"{name} read a frame", fontsize=13)
    axes.set_ylabel("ms a frame", fontsize=13)
    taken = _roof(axes, roof_gbps, size, right) if roof_gbps else []
    for x, ms, cell in placed:
        interval_mark(axes, ms.lo, ms.p50, ms.hi, x, exact=cell.exact, upright=True)
        (across, low), (_, high) = axes.transData.transform([(x, ms.lo), (x, ms.hi)])
        taken.append(Box(across - 4, low, across + 4, high))
    placed.sort(key=lambda entry: -entry[1].p50)
    points, names = [(x, ms.p50) for x, ms, _ in placed], [one_line(cell.variant, 24) for _, _, cell in placed]
    write_names(axes, points, names, 13 if is_wide else 11, taken)
    told = "; ".join(
        f"{one_line(cell.variant, 80)}: {significant(x)} {name}, {significant(ms.p50)} ms" for x, ms, cell in placed
    )
    roof = f"; reading at {significant(roof_gbps)} GB/s takes the time of the line" if roof_gbps else ""
    return inline(figure, f"same-bits-{'wide' if is_wide else 'narrow'}", _TITLE, told + roof)


def _roof(axes: Axes, gbps: float, size: float, right: float) -> list[Box]:
    """The line time = bytes / bandwidth, its figure at its end; what the two take of the drawing."""
    top = right * size / gbps / 1e6
    end = (right, top) if top <= axes.get_ylim()[1] else (axes.get_ylim()[1] * gbps * 1e6 / size, axes.get_ylim()[1])
    axes.plot([0, end[0]], [0, end[1]], color=LIMIT, linewidth=1.8)
    (x0, y0), (x1, y1) = axes.transData.transform([(0, 0), end])
    words = f"the roof, {significant(gbps)} GB/s"
    angle = math.atan2(y1 - y0, x1 - x0)
    # Below the line, as points are above it; but not upon the axis.
    low = y1 - y0 < 60
    axes.annotate(
        words, end, xytext=(-4, 5 if low else -5), textcoords="offset points", rotation=math.degrees(angle),
        rotation_mode="anchor", ha="right", va="bottom" if low else "top", fontsize=12, color=INK,
    )  # fmt: skip
    across, up = 12 * math.sin(angle), 12 * math.cos(angle)
    sign = 1 if low else -1
    length = 6.8 * len(words)
    start = (x1 - length * math.cos(angle) - sign * across, y1 - length * math.sin(angle) + sign * up)
    return [*line_boxes((x0, y0), (x1, y1)), *line_boxes(start, (x1 - sign * across, y1 + sign * up), 6)]
