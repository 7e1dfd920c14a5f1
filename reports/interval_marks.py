"""What charts of intervals share: a point with its whisker, filled where exact, and plain logarithmic ticks."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports.svg import EXACT, INK, OTHER, PAPER


def interval_mark(
    axes: Axes, low: float, middle: float, high: float, at: float, *, exact: bool, upright: bool = False
) -> None:
    """An interval along x at the height ``at``, or, upright, along y above it."""
    ends, points = ([at, at], [low, high]) if upright else ([low, high], [at, at])
    axes.plot(
        ends, points, color=INK, linewidth=1.5, marker="_" if upright else "|", markersize=10, markeredgewidth=1.5
    )
    dot(axes, *((at, middle) if upright else (middle, at)), exact=exact)


def dot(axes: Axes, x: float, y: float, *, exact: bool, size: float = 5.5) -> None:
    """A filled circle where exact, else a hollow square."""
    color = EXACT if exact else OTHER
    axes.plot(
        [x], [y], linestyle="none", marker="o" if exact else "s", markersize=size,
        markerfacecolor=color if exact else PAPER, markeredgecolor=color, markeredgewidth=1.8,
    )  # fmt: skip


def plain_log_ticks(axes: Axes, subs: Sequence[float], most: int = 12) -> None:
    """Ticks of a logarithmic x axis as plain numbers, at these multiples of powers of ten."""
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=most))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
