"""How figures and foreign text are put into words: three significant digits, nothing unbounded."""

from __future__ import annotations

import math
import re

from bench.records import Interval, Ratio

NOTHING = "–"
"""What a cell of a table shows where there is no figure."""

TEXT_LIMIT = 2000
"""Characters of a foreign text (a reason, a machine fact) that a report shows."""


def significant(value: float | None) -> str:
    """``value`` with three significant digits, never in exponent notation between 1e-4 and 1e15.

    A value that rounds up to a new digit keeps three: 99.96 gives ``100``.
    """
    if value is None:
        return NOTHING
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")
    digits_before_point = math.floor(math.log10(abs(rounded))) + 1
    if digits_before_point < -3:
        return f"{value:.2e}"
    return f"{rounded:.{max(0, 3 - digits_before_point)}f}"


def bounds(low: float, high: float) -> str:
    """An interval, ``[65.1, 66.9]``."""
    return f"[{significant(low)}, {significant(high)}]"


def milliseconds(interval: Interval | None) -> str:
    """Median and interval without the unit: ``65.8 [65.1, 66.9]``."""
    return NOTHING if interval is None else f"{significant(interval.p50)} {bounds(interval.lo, interval.hi)}"


def times(ratio: Ratio | None) -> str:
    """A ratio with its interval: ``2.73× [2.70, 2.76]``."""
    return NOTHING if ratio is None else f"{significant(ratio.ratio)}× {bounds(ratio.lo, ratio.hi)}"


def percent(share: float | None) -> str:
    """A share in 0..1 as a percentage; only a share of exactly 1 is called 100 %, only 0 is called 0 %."""
    if share is None:
        return NOTHING
    text = significant(100 * share)
    if share < 1 and text == "100":
        return "> 99.9 %"
    return f"{text} %"


def difference(share: float) -> str:
    """How far times differ, as a percentage below 100 %, and as a factor from there on: ``a factor of 16.9``."""
    return percent(share) if share < 1 else f"a factor of {significant(1 + share)}"


def plural(count: int, noun: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def clip(text: str, limit: int = TEXT_LIMIT) -> str:
    """At most ``limit`` characters of ``text``, saying how many more there were."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit} characters more)"


def one_line(text: str, limit: int = TEXT_LIMIT) -> str:
    """``text`` with every run of white space as one space, clipped."""
    return clip(" ".join(text.split()), limit)


def keep_together(text: str) -> str:
    """``text`` with no-break spaces between a figure and its unit, and inside an interval."""
    return re.sub(r"(?<=\d) (?=ms|thread|%)|(?<=,) (?=[\d.]+\])", "\N{NO-BREAK SPACE}", text)
