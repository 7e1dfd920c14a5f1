"""A variant's time over runs, one panel below another: medians with their intervals, and flagged changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.bar_drawing import Chart
from reports.svg import BUDGET, EXACT, LIMIT, MUTED, OTHER, PAPER, UNITS_PER_INCH, drawing, inline
from reports.wording import one_line, significant

MOST_LABELS = {True: 18, False: 5}
"""Runs named below a wide and a narrow plot; with more, some are left out."""

_PANEL, _TITLE, _BOTTOM = 104.0, 30.0, 84.0


@dataclass(frozen=True, slots=True)
class Point:
    """A run: its place among all runs, its figures in milliseconds, and its flag: "", "faster" or "slower"."""

    at: int
    ms: float
    low: float
    high: float
    flag: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A variant's points, oldest first."""

    label: str
    exact: bool
    points: list[Point]


def history_chart(lines: Sequence[Line], runs: Sequence[str]) -> Chart | None:
    """Draw each line in a panel of its own over all ``runs`` (their labels, oldest first); None without a line."""
    if not lines or not runs:
        return None
    with drawing():
        return Chart(_draw(lines, runs, is_wide=True), _draw(lines, runs, is_wide=False), starred=False)


def _draw(lines: Sequence[Line], runs: Sequence[str], *, is_wide: bool) -> str:
    width, left, right = (1110.0, 62.0, 20.0) if is_wide else (340.0, 50.0, 10.0)
    height = len(lines) * (_PANEL + _TITLE) + _BOTTOM
    figure = Figure(figsize=(width / UNITS_PER_INCH, height / UNITS_PER_INCH), dpi=UNITS_PER_INCH)
    FigureCanvasSVG(figure)
    for number, line in enumerate(lines):
        bottom = height - (number + 1) * (_PANEL + _TITLE)
        axes = figure.add_axes((left / width, bottom / height, (width - left - right) / width, _PANEL / height))
        _panel(axes, line, len(runs))
        axes.set_xticks([])
        if number == len(lines) - 1:
            every = -(-len(runs) // MOST_LABELS[is_wide])
            at = list(range(0, len(runs), every))
            axes.set_xticks(at, [one_line(runs[index], 16) for index in at], rotation=45, ha="right", fontsize=11)
            axes.tick_params(axis="x", length=0, pad=4)
    told = "; ".join(f"{line.label}: {_words(line)}" for line in lines)
    name = f"history-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "ms a frame over runs, oldest first", told)


def _panel(axes: Axes, line: Line, runs: int) -> None:
    color = EXACT if line.exact else OTHER
    at, ms = [point.at for point in line.points], [point.ms for point in line.points]
    errors = [
        [max(0.0, point.ms - point.low) for point in line.points],
        [max(0.0, point.high - point.ms) for point in line.points],
    ]
    axes.errorbar(at, ms, yerr=errors, fmt="none", ecolor=MUTED, elinewidth=1.5, capsize=4, capthick=1.5)
    axes.plot(
        at, ms, color=color, linewidth=1.8, marker="o" if line.exact else "s", markersize=5.5,
        markerfacecolor=color if line.exact else PAPER, markeredgecolor=color,
    )  # fmt: skip
    for point in line.points:
        if point.flag:
            slower = point.flag == "slower"
            axes.annotate(
                f"{'▲' if slower else '▼'} {point.flag}", (point.at, point.high), xytext=(0, 6),
                textcoords="offset points", ha="center", fontsize=11, color=LIMIT if slower else BUDGET,
                annotation_clip=False,
            )  # fmt: skip
    low, high = min(point.low for point in line.points), max(point.high for point in line.points)
    margin = max(0.25 * (high - low), 0.01 * high, 1e-9)
    axes.set_xlim(-0.5, runs - 0.5)
    axes.set_ylim(low - margin, high + margin)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.tick_params(axis="y", labelsize=11, length=0, pad=5)
    axes.set_title(f"{one_line(line.label, 40)}, ms", loc="left", fontsize=12, pad=8)


def _words(line: Line) -> str:
    flags = sum(bool(point.flag) for point in line.points)
    return (
        f"{len(line.points)} runs, first {significant(line.points[0].ms)} ms, "
        f"last {significant(line.points[-1].ms)} ms, {flags} flagged"
    )
