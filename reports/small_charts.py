"""Small multiples: one small chart a variant, all with the same axes, the other variants faint behind it.

Small charts need no legend, hold any number of variants, and flow into as many columns as the page has room for.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bench.records import CellSummary, Summary
from reports.bars import best_cells
from reports.svg import BUDGET, EXACT, FAINT, OTHER, PAPER, drawing, inline, new_axes
from reports.wording import one_line, plural, significant

WIDTH, HEIGHT = 350, 220
FAINT_LINES = 12
"""Other variants drawn behind a small chart."""


@dataclass(frozen=True, slots=True)
class SmallChart:
    """One variant's chart: its heading, a line of figures, and the SVG element."""

    heading: str
    figures: str
    svg: str


@dataclass(frozen=True, slots=True)
class _Series:
    variant: str
    threads: int
    x: list[int]
    y: list[float]
    exact: bool
    hollow: list[bool]


def scaling_charts(summary: Summary) -> list[SmallChart]:
    """Speed by thread count, relative to each variant's least; for variants timed at more than one."""
    timed: dict[str, list[CellSummary]] = {}
    for cell in summary.cells:
        if cell.cp_ms is not None and cell.cp_ms.p50 > 0:
            timed.setdefault(cell.variant, []).append(cell)
    all_series = []
    for variant in dict.fromkeys(cell.variant for cell in best_cells(summary)):
        cells = sorted(timed.get(variant, []), key=lambda cell: cell.threads)
        medians = [cell.cp_ms.p50 for cell in cells if cell.cp_ms is not None]
        threads = [cell.threads for cell in cells]
        if len(set(threads)) > 1:
            speeds = [medians[0] / median for median in medians]
            hollow = [cell.oversubscribed for cell in cells]
            all_series.append(_Series(variant, threads[0], threads, speeds, cells[0].exact, hollow))
    if not all_series:
        return []
    last_thread = max(series.x[-1] for series in all_series)
    highest = max(max(series.y) for series in all_series)
    charts = []
    with drawing():
        for number, series in enumerate(all_series):
            figure, axes = new_axes(WIDTH, HEIGHT, 44, 14, 10, 44)
            axes.set_xlim(0, last_thread + 0.4)
            axes.set_ylim(0, max(highest, min(last_thread, 1.5 * highest)) * 1.08)
            ideal = [thread / series.threads for thread in (series.x[0], series.x[-1])]
            axes.plot([series.x[0], series.x[-1]], ideal, color=BUDGET, linewidth=1.5, linestyle=(0, (5, 3)))
            _draw(axes, series, all_series)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
            axes.set_xlabel("threads")
            axes.set_ylabel("times as fast")
            figures = ", ".join(f"{significant(y)}× at {x}" for x, y in zip(series.x[1:], series.y[1:], strict=True))
            base = plural(series.threads, "thread")
            title = f"{one_line(series.variant)}: speed by thread count"
            svg = inline(figure, f"scaling-{number}", title, f"relative to {base}: {figures}")
            charts.append(SmallChart(one_line(series.variant), f"against {base}: {figures}", svg))
    return charts


def pass_charts(summary: Summary) -> list[SmallChart]:
    """Median time of each pass of a frame, ms, for each variant at its best thread count."""
    all_series = [
        _Series(
            variant=cell.variant,
            threads=cell.threads,
            x=list(range(1, len(cell.code_ms) + 1)),
            y=cell.code_ms,
            exact=cell.exact,
            hollow=[False] * len(cell.code_ms),
        )
        for cell in best_cells(summary)
        if cell.code_ms
    ]
    if not all_series:
        return []
    highest = max(max(series.y) for series in all_series)
    last_pass = max(len(series.x) for series in all_series)
    charts = []
    with drawing():
        for number, series in enumerate(all_series):
            figure, axes = new_axes(WIDTH, HEIGHT, 44, 14, 10, 44)
            axes.set_xlim(0.4, last_pass + 0.6)
            axes.set_ylim(0, highest * 1.08 if highest > 0 else 1)
            _draw(axes, series, all_series)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
            axes.set_xlabel("pass")
            axes.set_ylabel("ms")
            first, last = significant(series.y[0]), significant(series.y[-1])
            figures = f"first {first} ms, last {last} ms"
            heading = f"{one_line(series.variant)} × {series.threads}"
            svg = inline(figure, f"passes-{number}", f"{heading}: ms of each pass", figures)
            charts.append(SmallChart(heading, figures, svg))
    return charts


def _draw(axes: Axes, series: _Series, others: list[_Series]) -> None:
    for other in [other for other in others if other is not series][:FAINT_LINES]:
        axes.plot(other.x, other.y, color=FAINT, linewidth=1.2)
    color = EXACT if series.exact else OTHER
    marker = "o" if series.exact else "s"
    axes.plot(series.x, series.y, color=color, linewidth=2)
    for hollow in (False, True):
        points = [
            (x, y) for x, y, is_hollow in zip(series.x, series.y, series.hollow, strict=True) if is_hollow is hollow
        ]
        if points:
            fill = PAPER if hollow else color
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                linestyle="none",
                marker=marker,
                markersize=6,
                markerfacecolor=fill,
                markeredgecolor=color,
                markeredgewidth=1.5,
            )
    axes.grid(visible=True, axis="y")
    axes.tick_params(labelsize=11, length=0, pad=5)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
