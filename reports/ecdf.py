"""How frame times are distributed: the share of a variant's frames that took no longer than so many times the median.

Small multiples like those of `reports.small_charts`. The empirical distribution hides nothing that a histogram's bins
would: two states of a machine are two steps, rare slow frames a tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import MaxNLocator

from bench.records import CellRecord, Summary
from reports.bars import best_cells
from reports.samples import frames_ms
from reports.small_charts import FAINT_LINES, HEIGHT, WIDTH, SmallChart
from reports.svg import EXACT, FAINT, MUTED, OTHER, drawing, inline, new_axes
from reports.wording import one_line, plural, significant

LEAST_FRAMES = 5
"""Fewer frames are no distribution."""

#: Steps of the line itself and of the faint ones behind the others; with more frames quantiles stand for them.
_STEPS, _FAINT_STEPS = 120, 24
#: The axis ends here at the latest; what lies beyond is told.
_FARTHEST = 1.6


@dataclass(frozen=True, slots=True)
class _Distribution:
    heading: str
    exact: bool
    frames: list[float]

    @property
    def middle(self) -> float:
        return _quantile(self.frames, 0.5)

    def relative(self, steps: int) -> tuple[list[float], list[float]]:
        """Times over the median, and the share of frames that took no longer."""
        count = min(steps, len(self.frames))
        shares = [(number + 1) / count for number in range(count)]
        return [_quantile(self.frames, share) / self.middle for share in shares], shares


def ecdf_charts(summary: Summary, records: Sequence[CellRecord]) -> list[SmallChart]:
    """One chart for each variant at its best thread count, where it has frames enough."""
    samples = frames_ms(records)
    found = [
        _Distribution(f"{one_line(cell.variant)} × {cell.threads}", cell.exact, samples[cell.variant, cell.threads])
        for cell in best_cells(summary)
        if len(samples.get((cell.variant, cell.threads), [])) >= LEAST_FRAMES
    ]
    found = [one for one in found if one.frames[0] > 0]
    if not found:
        return []
    low = min(one.frames[0] / one.middle for one in found)
    high = min(_FARTHEST, max(one.frames[-1] / one.middle for one in found))
    margin = 0.04 * max(high - low, 0.01)
    with drawing():
        return [_draw(number, one, found, low - margin, high + margin) for number, one in enumerate(found)]


def _draw(number: int, one: _Distribution, others: list[_Distribution], low: float, high: float) -> SmallChart:
    figure, axes = new_axes(WIDTH, HEIGHT, 44, 14, 10, 44)
    axes.set_xlim(low, high)
    axes.set_ylim(0, 1.02)
    axes.axvline(1, color=MUTED, linewidth=1)
    for other in [other for other in others if other is not one][:FAINT_LINES]:
        axes.plot(*other.relative(_FAINT_STEPS), color=FAINT, linewidth=1.2)
    times, shares = one.relative(_STEPS)
    axes.step([low, times[0], *times, high], [0, 0, *shares, 1], where="post", linewidth=2,
              color=EXACT if one.exact else OTHER)  # fmt: skip
    axes.grid(visible=True, axis="y")
    axes.tick_params(labelsize=11, length=0, pad=5)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    axes.set_xlabel("times the median")
    axes.set_ylabel("share of frames")
    beyond = sum(ms / one.middle > high for ms in one.frames)
    figures = (
        f"{plural(len(one.frames), 'frame')}: median {significant(one.middle)} ms, "
        f"99th percentile {significant(_quantile(one.frames, 0.99))} ms, slowest {significant(one.frames[-1])} ms"
        f"{f'; {beyond} beyond the axis' if beyond else ''}"
    )
    svg = inline(figure, f"ecdf-{number}", f"{one.heading}: distribution of frame times", figures)
    return SmallChart(one.heading, figures, svg)


def _quantile(ascending: Sequence[float], share: float) -> float:
    """The least value that a ``share`` of all does not exceed."""
    return ascending[max(0, min(len(ascending) - 1, -int(-share * len(ascending) // 1) - 1))]
