"""Speed over another engine, a row a pair: what was measured with its interval, and the most that memory allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from bench.records import CellSummary, Comparison
from reports.bar_drawing import Chart, shortened
from reports.interval_marks import interval_mark, plain_log_ticks
from reports.plain_speeds import speed_of
from reports.svg import FAINT, INK, LIMIT, MUTED, PAPER, drawing, inline, new_axes
from reports.wording import one_line, significant, times

MOST_PAIRS = 40
"""Pairs drawn, the first ones; the table has all of them."""

_TITLE = "Speed of the lab's cells over other engines', and its limit"
_TOP, _BOTTOM = 26.0, 46.0


@dataclass(frozen=True, slots=True)
class Pair:
    """An engine's cell, the lab's own beside it, and what the run's rounds say of the two. Both have times."""

    theirs: CellSummary
    ours: CellSummary
    found: Comparison

    @property
    def limit(self) -> float | None:
        """Speed of ours over theirs if ours took its roof's time alone; None where it has no roof."""
        if not self.ours.roof_ms or self.theirs.cp_ms is None:
            return None
        return self.theirs.cp_ms.p50 / self.ours.roof_ms

    @property
    def is_oversubscribed(self) -> bool:
        """Whether one of the two has more threads than CPUs."""
        return self.theirs.oversubscribed or self.ours.oversubscribed

    @property
    def bytes_share(self) -> float | None:
        """What ours reads a frame, of what theirs reads; None where one is not known."""
        if not self.theirs.bytes_per_frame or not self.ours.bytes_per_frame:
            return None
        return self.ours.bytes_per_frame / self.theirs.bytes_per_frame


def limit_chart(pairs: list[Pair]) -> Chart:
    """The plot of at least one pair, on a logarithmic axis."""
    shown = pairs[:MOST_PAIRS]
    with drawing():
        return Chart(
            wide=_draw(shown, is_wide=True),
            narrow=_draw(shown, is_wide=False),
            starred=any(pair.is_oversubscribed for pair in shown),
        )


def _draw(pairs: list[Pair], *, is_wide: bool) -> str:
    row = 24.0 if is_wide else 56.0
    longest = max(len(_label(pair)) for pair in pairs)
    left, right = (24 + 7.1 * longest, 250.0) if is_wide else (10.0, 14.0)
    width = 1110.0 if is_wide else 340.0
    figure, axes = new_axes(width, _TOP + row * len(pairs) + _BOTTOM, left, right, _TOP, _BOTTOM)
    speeds = [speed_of(pair.found) for pair in pairs]
    limits = [pair.limit for pair in pairs if pair.limit]
    low = min(1.0, *(speed.lo for speed in speeds), *limits)
    high = max(1.0, *(speed.hi for speed in speeds), *limits)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.12, high * 1.12)
    axes.set_ylim(len(pairs) - 0.5, -0.5)
    axes.set_yticks([])
    _ticks(axes, high / low, is_wide=is_wide)
    axes.grid(visible=True, axis="x")
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.set_xlabel("speed over the engine, logarithmic", fontsize=13)
    axes.axvline(1, color=MUTED, linewidth=1.6, zorder=1.5)
    axes.annotate(
        "as fast", (1, -0.5), xytext=(0, 5), textcoords="offset points", ha="left" if low > 0.8 else "center",
        fontsize=12, color=MUTED, annotation_clip=False,
    )  # fmt: skip
    for number, pair in enumerate(pairs):
        _row(axes, pair, number, is_wide=is_wide)
    told = "; ".join(f"{_label(pair, 80)}: {_figures(pair)}" for pair in pairs)
    return inline(figure, f"engines-{'wide' if is_wide else 'narrow'}", _TITLE, told)


def _row(axes: Axes, pair: Pair, number: int, *, is_wide: bool) -> None:
    at = number if is_wide else number + 0.28
    speed, limit = speed_of(pair.found), pair.limit
    if limit:
        axes.plot([speed.ratio, limit], [at, at], color=FAINT, linewidth=5, solid_capstyle="butt", zorder=1.6)
        axes.plot([limit], [at], linestyle="none", marker="|", markersize=15, markeredgewidth=3, color=LIMIT)
    interval_mark(axes, speed.lo, speed.ratio, speed.hi, at, exact=pair.ours.exact)
    shared: dict[str, Any] = {
        "transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 13 if is_wide else 12, "color": INK,
    }  # fmt: skip
    if is_wide:
        axes.text(-0.012, number, _label(pair), ha="right", **shared)
        axes.text(1.015, number, _figures(pair), **shared)
    else:
        shared["bbox"] = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}  # the line of 1 runs behind it
        axes.text(0.01, number - 0.34, _label(pair, 20), **shared)
        axes.text(0.01, number - 0.07, _figures(pair), **shared)


def _ticks(axes: Axes, spread: float, *, is_wide: bool) -> None:
    """Plain numbers; the narrower the range, the more of them between powers of ten."""
    if spread > 8 or (spread > 3 and not is_wide):
        plain_log_ticks(axes, (1, 2, 5))
    else:
        plain_log_ticks(axes, (1, 1.2, 1.5, 2, 3, 4, 5, 6, 8) if is_wide else (1, 1.5, 2, 3, 5, 8))


def _label(pair: Pair, characters: int = 24) -> str:
    star = " *" if pair.is_oversubscribed else ""
    ours, theirs = (shortened(one_line(cell.variant), characters) for cell in (pair.ours, pair.theirs))
    return f"{ours} over {theirs} × {pair.ours.threads}{star}"


def _figures(pair: Pair) -> str:
    limit = "no roof" if pair.limit is None else f"limit {significant(pair.limit)}×"
    return f"{times(speed_of(pair.found))}, {limit}"
