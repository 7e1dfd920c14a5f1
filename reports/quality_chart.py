"""The Pareto plot: milliseconds a frame to the right, agreement upwards; what is up and left is better."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from reports.bar_drawing import Chart
from reports.quality_points import Point
from reports.svg import BUDGET, EXACT, FAINT, INK, OTHER, PAPER, drawing, inline, new_axes
from reports.wording import one_line, significant

_TITLE = "Milliseconds a frame and share of codes that are the model's, codes pinned"


def pareto_chart(placed: Sequence[Point], budget_ms: float) -> Chart | None:
    """The plot; None where no variant has both figures.

    Args:
        placed: what is drawn.
        budget_ms: a vertical line, or 0 for none.
    """
    if not placed:
        return None
    with drawing():
        return Chart(
            wide=_draw(placed, budget_ms, is_wide=True),
            narrow=_draw(placed, budget_ms, is_wide=False),
            starred=any(not point.exact for point in placed),
        )


def _draw(placed: Sequence[Point], budget_ms: float, *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 430 if is_wide else 360, 58, 24 if is_wide else 12, 26, 48)
    right = max([point.ms.hi for point in placed] + [budget_ms])
    least = min(100 * point.agreement.lo for point in placed)
    axes.set_xlim(0, right * (1.16 if is_wide else 1.3))
    axes.set_ylim(max(0.0, least - 8), 106)
    axes.grid(visible=True)
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.locator_params(axis="x", nbins=9 if is_wide else 5)
    axes.set_yticks([tick for tick in range(0, 101, 10 if is_wide else 20) if tick >= axes.get_ylim()[0]])
    axes.set_xlabel("ms a frame", fontsize=13)
    axes.set_ylabel("agreement, %", fontsize=13)
    if budget_ms > 0:
        axes.axvline(budget_ms, color=BUDGET, linewidth=1.6, linestyle=(0, (6, 3)))
        axes.annotate(
            f"{significant(budget_ms)} ms", (budget_ms, 1), xycoords=("data", "axes fraction"), xytext=(4, 6),
            textcoords="offset points", fontsize=12, color=INK,
        )  # fmt: skip
    front = sorted((point for point in placed if point.front), key=lambda point: point.ms.p50)
    axes.plot(
        [point.ms.p50 for point in front], [100 * point.agreement.value for point in front],
        color=FAINT, linewidth=2.0, drawstyle="steps-post", zorder=1.2,
    )  # fmt: skip
    for point, down in zip(placed, _rows_down(placed, right, is_wide=is_wide), strict=True):
        _point(axes, point, down, is_wide=is_wide)
    told = "; ".join(
        f"{point.variant}: {significant(point.ms.p50)} ms, {significant(100 * point.agreement.value)} %"
        for point in placed
    )
    return inline(figure, f"pareto-{'wide' if is_wide else 'narrow'}", _TITLE, told)


def _rows_down(placed: Sequence[Point], right: float, *, is_wide: bool) -> list[int]:
    """How many lines a label goes down, so that those of neighbours do not lie on each other."""
    rows: list[int] = []
    reach = (0.17 if is_wide else 0.5) * right
    for number, point in enumerate(placed):
        taken = {
            rows[before]
            for before in range(number)
            if abs(placed[before].ms.p50 - point.ms.p50) < reach
            and abs(placed[before].agreement.value - point.agreement.value) < 0.12
        }
        rows.append(next(row for row in range(len(placed)) if row not in taken))
    return rows


def _point(axes: Axes, point: Point, down: int, *, is_wide: bool) -> None:
    color = EXACT if point.exact else OTHER
    x, y = point.ms.p50, 100 * point.agreement.value
    axes.errorbar(
        x, y, fmt="none", ecolor=color, elinewidth=1.3, capsize=3,
        xerr=[[max(0.0, x - point.ms.lo)], [max(0.0, point.ms.hi - x)]],
        yerr=[[max(0.0, y - 100 * point.agreement.lo)], [max(0.0, 100 * point.agreement.hi - y)]],
    )  # fmt: skip
    axes.plot([x], [y], "o", markersize=9, markerfacecolor=color if point.exact else PAPER, markeredgecolor=color)
    axes.annotate(
        one_line(point.variant, 30), (x, y), xytext=(9, -12 - 14 * down), textcoords="offset points",
        fontsize=12 if is_wide else 11, color=INK,
    )  # fmt: skip
