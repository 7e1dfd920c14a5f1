"""Runs side by side: each variant's speed over its own run's baseline, a line of the chart for each run that has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from bench.records import Ratio
from reports.bar_drawing import Chart
from reports.interval_marks import interval_mark, plain_log_ticks
from reports.svg import INK, MUTED, PAPER, drawing, inline, new_axes
from reports.wording import one_line, times

MOST_LINES = 80
"""Lines drawn, of the fastest variants; the table has all of them."""

_TOP, _BOTTOM = 12.0, 48.0
#: Paper behind names that lie on the plot.
_BEHIND = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}


@dataclass(frozen=True, slots=True)
class Mark:
    """One variant in one run, named by the run's letter."""

    letter: str
    ratio: Ratio
    exact: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A variant, and what each run that timed it says."""

    variant: str
    marks: list[Mark]


def beside_chart(groups: Sequence[Group]) -> Chart | None:
    """Draw the groups from top to bottom on a logarithmic axis; None where no run has a ratio."""
    shown: list[Group] = []
    for group in groups:
        if group.marks and sum(len(one.marks) for one in shown) + len(group.marks) <= MOST_LINES:
            shown.append(group)
    if not shown:
        return None
    with drawing():
        return Chart(_draw(shown, is_wide=True), _draw(shown, is_wide=False), starred=False)


def _draw(groups: list[Group], *, is_wide: bool) -> str:
    line, gap = (22.0, 12.0) if is_wide else (22.0, 28.0)
    width = 1110.0 if is_wide else 340.0
    longest = min(30, max(len(group.variant) for group in groups))
    left, right = (54 + 7.8 * longest, 170.0) if is_wide else (26.0, 132.0)
    height = sum(gap + line * len(group.marks) for group in groups)
    figure, axes = new_axes(width, _TOP + height + _BOTTOM, left, right, _TOP, _BOTTOM)
    marks = [mark.ratio for group in groups for mark in group.marks]
    low, high = min([1.0, *(ratio.lo for ratio in marks)]), max([1.0, *(ratio.hi for ratio in marks)])
    axes.set_xscale("log")
    axes.set_xlim(low / 1.12, high * 1.12)
    axes.set_ylim(height, 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    subs = (1, 2, 5) if high / low > 8 or not is_wide else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    plain_log_ticks(axes, subs)
    axes.grid(visible=True, axis="x")
    axes.axvline(1, color=MUTED, linewidth=1.5)
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.set_xlabel("speed over the run's own baseline" if is_wide else "× own baseline", fontsize=13)
    at = 0.0
    for group in groups:
        at += gap
        _group(axes, group, at, line, left=left, is_wide=is_wide)
        at += line * len(group.marks)
    told = "; ".join(f"{group.variant}: {_words(group)}" for group in groups)
    name = f"beside-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "Speed of each variant over its own run's baseline", told)


def _group(axes: Axes, group: Group, top: float, line: float, *, left: float, is_wide: bool) -> None:
    across = axes.get_yaxis_transform()
    shared: dict[str, Any] = {"transform": across, "va": "center", "color": INK}
    plot = axes.get_window_extent().width
    variant = one_line(group.variant, 40)
    if is_wide:
        axes.text(-34 / plot, top + line / 2, variant, ha="right", fontsize=13, **shared)
    else:
        axes.text(-(left - 4) / plot, top - 10, variant, ha="left", fontsize=12, bbox=_BEHIND, **shared)
    for number, mark in enumerate(group.marks):
        at = top + line * (number + 0.5)
        interval_mark(axes, mark.ratio.lo, mark.ratio.ratio, mark.ratio.hi, at, exact=mark.exact)
        axes.text(-12 / plot, at, mark.letter, ha="center", fontsize=13, fontweight="bold", **shared)
        axes.text(1 + 10 / plot, at, times(mark.ratio), ha="left", fontsize=13 if is_wide else 12, **shared)


def _words(group: Group) -> str:
    return ", ".join(f"{mark.letter} {times(mark.ratio)}" for mark in group.marks)
