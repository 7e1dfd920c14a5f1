"""Measurements in the order in which they were made, each beside its own cell's median: drift shows as a slope.

Cells take turns, so that a machine that grows slower lifts all of them alike, and no cell more than another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib.ticker import MaxNLocator

from bench.records import CellRecord
from reports.bar_drawing import Chart
from reports.samples import timed
from reports.svg import BUDGET, EXACT, GRID, LIMIT, MUTED, drawing, inline, new_axes
from reports.wording import plural, significant

MOST_POINTS = 1500
"""Points drawn; beyond it every second, third, ... is."""

#: Points beyond so many times the 95th percentile of distances stand at the edge.
_REACH = 3.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One measurement: its round, how far (%) its median is from its cell's, and whether it was disturbed."""

    round: int
    percent: float
    disturbed: bool


def in_turn(records: Sequence[CellRecord]) -> list[Measured]:
    """All timed measurements of cells with more than one, in the order in which they were made."""
    found: dict[tuple[str, int], list[float]] = {}
    kept = [record for record in timed(records) if min(record.samples_ns) > 0]
    for record in kept:
        found.setdefault((record.variant, record.threads), []).append(median(record.samples_ns))
    middle = {key: median(medians) for key, medians in found.items() if len(medians) > 1}
    return [
        Measured(
            record.round,
            100 * (median(record.samples_ns) / middle[record.variant, record.threads] - 1),
            bool(record.facts.get("disturbed")),
        )
        for record in kept
        if (record.variant, record.threads) in middle
    ]


def drift_sentence(measured: Sequence[Measured]) -> str:
    """The first rounds beside the last ones; empty where there are fewer than three rounds."""
    rounds = sorted({one.round for one in measured})
    if len(rounds) < 3:
        return ""
    third = len(rounds) // 3
    first = median(one.percent for one in measured if one.round in rounds[:third])
    last = median(one.percent for one in measured if one.round in rounds[-third:])
    change = last - first
    told = f"From the first {plural(third, 'round')} to the last, cells became"
    if abs(change) < 0.05:
        return f"{told} neither slower nor faster (under 0.05 %)."
    return f"{told} {significant(abs(change))} % {'slower' if change > 0 else 'faster'}."


def order_chart(records: Sequence[CellRecord]) -> Chart | None:
    """One point for each measurement; None where no cell was measured twice."""
    measured = in_turn(records)
    if not measured:
        return None
    with drawing():
        return Chart(wide=_draw(measured, is_wide=True), narrow=_draw(measured, is_wide=False), starred=False)


def _draw(measured: Sequence[Measured], *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 300 if is_wide else 260, 62 if is_wide else 48, 14, 14, 48)
    distances = sorted(abs(one.percent) for one in measured)
    reach = max(1.0, min(distances[-1], _REACH * distances[int(0.95 * (len(distances) - 1))]) * 1.1)
    step = -(-len(measured) // MOST_POINTS)
    shown = list(enumerate(measured, start=1))[::step]
    for disturbed in (False, True):
        points = [(at, one.percent) for at, one in shown if one.disturbed is disturbed]
        inside = [point for point in points if abs(point[1]) <= reach]
        color = LIMIT if disturbed else EXACT
        axes.plot(*_columns(inside), linestyle="none", marker="x" if disturbed else "o",
                  markersize=7 if disturbed else 5, markeredgewidth=2 if disturbed else 1, color=color)  # fmt: skip
        for sign, marker in ((1, "^"), (-1, "v")):
            beyond = [(at, 0.96 * sign * reach) for at, value in points if value * sign > reach]
            axes.plot(*_columns(beyond), linestyle="none", marker=marker, markersize=6, color=color)
    starts, middles, levels = _rounds(measured)
    for start in starts[1:]:
        axes.axvline(start - 0.5, color=GRID, linewidth=1, zorder=0.5)
    axes.plot(middles, levels, color=BUDGET, linewidth=2)
    axes.axhline(0, color=MUTED, linewidth=1)
    axes.set_xlim(0.3, len(measured) + 0.7)
    axes.set_ylim(-reach, reach)
    axes.grid(visible=True, axis="y")
    axes.tick_params(labelsize=12, length=0, pad=5)
    axes.xaxis.set_major_locator(MaxNLocator(8 if is_wide else 4, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.set_xlabel("measurement, in the order of the run", fontsize=13 if is_wide else 12)
    axes.set_ylabel("% beside the cell's median", fontsize=13 if is_wide else 12)
    marked = sum(one.disturbed for one in measured)
    told = (
        f"{plural(len(measured), 'measurement')} in {plural(len(starts), 'round')}, from "
        f"{significant(min(one.percent for one in measured))} % to {significant(max(one.percent for one in measured))} "
        f"% beside their cell's median; {marked} disturbed. {drift_sentence(measured)}"
    )
    name = f"order-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "Measurements in the order of the run, beside their cell's median", told)


def _rounds(measured: Sequence[Measured]) -> tuple[list[int], list[float], list[float]]:
    """Where each round begins, the middle of its stretch, and the median of its points."""
    stretches: list[list[int]] = []
    for at, one in enumerate(measured, start=1):
        if stretches and measured[stretches[-1][-1] - 1].round == one.round:
            stretches[-1].append(at)
        else:
            stretches.append([at])
    levels = [median(measured[at - 1].percent for at in stretch) for stretch in stretches]
    return [stretch[0] for stretch in stretches], [median(stretch) for stretch in stretches], levels


def _columns(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [at for at, _ in points], [value for _, value in points]
