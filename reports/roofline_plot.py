"""The roofline plot: what each variant reaches, by how much it computes for each byte that it reads.

Both axes are logarithmic. Slopes are read bandwidths of memory and of the last-level cache, level lines are
multiply-add peaks (`bench.records.roofline` has the definitions). Points are numbered, and a table names them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.records import CellSummary, Roofline, RooflinePoint, Summary, TeamRoof, point_of
from reports.bar_drawing import Chart
from reports.bars import best_cells
from reports.figure_table import FigureTable, Heading
from reports.interval_marks import dot
from reports.svg import BUDGET, GRID, INK, LIMIT, MUTED, drawing, inline, new_axes
from reports.wording import one_line, percent, plural, significant

HEADINGS = (
    Heading("point", "its number in the plot"),
    Heading("cell", "variant and threads", is_text=True, names_row=True),
    Heading("operations a byte", "two for each multiply-add, over the weights that are read"),
    Heading("Gop/s", "thousands of millions of operations a second"),
    Heading("roof, Gop/s", "the most that the machine can do at that many operations a byte"),
    Heading("of roof"),
    Heading("bound by", "which roof is the lower one there", is_text=True),
)

#: Line styles by team, the one with most points first.
_DASHES: tuple[tuple[float, ...], ...] = ((), (6, 3), (2, 3))
_LABEL_GAP = 13.0


@dataclass(frozen=True, slots=True)
class RooflinePlot:
    """The chart, a table with a row for each point in the order of their numbers, and a sentence on the roofs drawn."""

    chart: Chart
    table: FigureTable
    roofs: str


@dataclass(frozen=True, slots=True)
class _Point:
    at: RooflinePoint
    cell: CellSummary


def roofline_plot(summary: Summary, roofline: Roofline | None) -> RooflinePlot | None:
    """Each variant's fastest cell beside the machine's roofs; None where none was measured, or no cell has a point."""
    if roofline is None:
        return None
    found = [(point_of(cell, roofline), cell) for cell in best_cells(summary)]
    points = [_Point(at, cell) for at, cell in found if at is not None and at.gflops > 0]
    if not points:
        return None
    counts = [point.at.threads for point in points]
    teams = [team for team in roofline.teams if team.threads in counts]
    teams = sorted(teams, key=lambda team: -counts.count(team.threads))[: len(_DASHES)]
    with drawing():
        chart = Chart(
            wide=_draw(points, teams, is_wide=True), narrow=_draw(points, teams, is_wide=False), starred=False
        )
    rows = [_table_row(number, point) for number, point in enumerate(points, 1)]
    return RooflinePlot(chart, FigureTable(HEADINGS, rows), _roofs(teams))


def _table_row(number: int, point: _Point) -> list[str]:
    at = point.at
    return [
        str(number),
        f"{one_line(at.variant, 80)} × {at.threads}",
        significant(at.flop_per_byte),
        significant(at.gflops),
        significant(at.roof_gflops),
        f"{percent(at.share)}{' (above: suspect)' if at.above else ''}",
        at.bound,
    ]


def _roofs(teams: Sequence[TeamRoof]) -> str:
    told = []
    for team in teams:
        parts = [f"{significant(gbps)} GB/s from {name}" for name, gbps in _slopes(team)]
        parts += [f"{significant(gflops)} Gop/s in {name}" for name, gflops in _levels(team)]
        told.append(f"{plural(team.threads, 'thread')}: {', '.join(parts)}")
    return f"Roofs: {'; '.join(told)}." if told else ""


def _slopes(team: TeamRoof) -> list[tuple[str, float]]:
    """Read bandwidths, GB/s; the last size measured stands for memory where levels are not told."""
    memory = team.best_gbps("memory") or (team.bandwidth[-1].best_gbps if team.bandwidth else None)
    known = [("memory", memory), ("cache", team.best_gbps("cache"))]
    return [(name, gbps) for name, gbps in known if gbps]


def _levels(team: TeamRoof) -> list[tuple[str, float]]:
    """Peaks; a multiply-add is two operations."""
    return [(kind, 2 * gmacs) for kind in ("float32", "int8") if (gmacs := team.gmacs(kind))]


def _draw(points: Sequence[_Point], teams: Sequence[TeamRoof], *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 480 if is_wide else 360, 66 if is_wide else 48, 18, 16, 50)
    x = [point.at.flop_per_byte for point in points]
    y = [point.at.gflops for point in points]
    ridges = [top / gbps for team in teams for _, gbps in _slopes(team) for _, top in _levels(team)]
    tops = [top for team in teams for _, top in _levels(team)]
    left, right = min(x) / 3, max([*x, *(ridge * 1.5 for ridge in ridges)]) * 1.6
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(min([*y, *(min(gbps for _, gbps in _slopes(team)) * left for team in teams)]) / 1.3,
                  max([*y, *tops]) * 2)  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if is_wide else (1,), numticks=14))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(visible=True, color=GRID)
    axes.tick_params(labelsize=12, length=0, pad=5)
    axes.set_xlabel("operations for each byte read", fontsize=13)
    axes.set_ylabel("Gop/s", fontsize=13)
    for team, dashes in zip(teams, _DASHES, strict=False):
        _draw_roofs(axes, team, dashes, right, is_labelled=is_wide)
    _draw_points(axes, points)
    told = "; ".join(
        f"{number}, {one_line(point.at.variant, 80)} × {point.at.threads}: {significant(point.at.flop_per_byte)} "
        f"operations a byte, {significant(point.at.gflops)} Gop/s, {percent(point.at.share)} of its roof"
        for number, point in enumerate(points, 1)
    )
    name = f"roofline-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "Roofline: operations a second by operations for each byte", told)


def _draw_roofs(axes: Axes, team: TeamRoof, dashes: tuple[float, ...], right: float, *, is_labelled: bool) -> None:
    left = axes.get_xlim()[0]
    style = "solid" if not dashes else (0, dashes)
    slopes, levels = _slopes(team), _levels(team)
    fastest = max((gbps for _, gbps in slopes), default=0.0)
    top = max((gflops for _, gflops in levels), default=math.inf)
    words = plural(team.threads, "thread")
    for name, gbps in slopes:
        end = min(right, top / gbps)
        axes.plot([left, end], [gbps * left, gbps * end], color=LIMIT, linewidth=1.8, linestyle=style)
        if is_labelled:
            (x0, y0), (x1, y1) = axes.transData.transform([(left, gbps * left), (end, gbps * end)])
            axes.annotate(
                f"{name}, {significant(gbps)} GB/s, {words}", (left, gbps * left), xytext=(10, 8),
                textcoords="offset points", rotation=math.degrees(math.atan2(y1 - y0, x1 - x0)),
                rotation_mode="anchor", va="bottom", fontsize=11, color=INK,
            )  # fmt: skip
    for name, gflops in levels:
        begin = gflops / fastest if fastest else left
        axes.plot([begin, right], [gflops, gflops], color=BUDGET, linewidth=1.8, linestyle=style)
        if is_labelled:
            axes.annotate(
                f"{name}, {significant(gflops)} Gop/s, {words}", (right, gflops), xytext=(-4, 4),
                textcoords="offset points", ha="right", va="bottom", fontsize=11, color=INK,
            )  # fmt: skip


def _draw_points(axes: Axes, points: Sequence[_Point]) -> None:
    """Each with a line up to its own roof, and its number beside it; numbers make room for each other."""
    last: dict[float, float] = {}
    for number, point in sorted(enumerate(points, 1), key=lambda entry: entry[1].at.gflops):
        at = point.at
        axes.plot([at.flop_per_byte] * 2, [at.gflops, at.roof_gflops], color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        dot(axes, at.flop_per_byte, at.gflops, exact=point.cell.exact, size=8)
        x, y = axes.transData.transform((at.flop_per_byte, at.gflops))
        column = round(x / 30)
        height = max(y, last.get(column, -math.inf) + _LABEL_GAP)
        last[column] = height
        axes.annotate(
            str(number), (at.flop_per_byte, at.gflops), xytext=(8, height - y), textcoords="offset points",
            va="center", fontsize=12, color=INK, fontweight="bold",
        )  # fmt: skip
