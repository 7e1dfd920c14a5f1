"""Medians, intervals and ratios whose independent unit is the round, which is one worker process.

Frames of one process share its memory layout, its pages and the minute in which it ran, so that they agree with one
another more than with the next process: an interval over frames would come out far too narrow. Every interval here
resamples rounds. Cells are compared within rounds, so that what slows a whole round down (heat, a neighbour) cancels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from bench.records import Interval, Ratio

RESAMPLES = 2000
FEWEST_ROUNDS = 3
"""Below it resampling says nothing, and an interval is the range of what was seen."""

_SEED = 20_250_807


def median_of_rounds(per_round: Sequence[Sequence[float]]) -> Interval:
    """The median over rounds of each round's median, with its 95 % bootstrap interval and the least sample.

    With fewer than 3 rounds the interval is the least and the greatest of the round medians: a range, no confidence.
    The bootstrap's generator is seeded, so that the same samples always give the same interval.

    Args:
        per_round: the samples of each round; milliseconds, as `Interval` wants them. Empty rounds are left out.

    Raises:
        ValueError: there is no sample at all, or one is not a positive number.
    """
    rounds = [samples for samples in per_round if len(samples)]
    if not rounds:
        raise ValueError("no round has a sample")
    medians = np.array([_median(samples) for samples in rounds])
    low, high = interval(medians)
    least = min(float(min(samples)) for samples in rounds)
    return Interval(p50=float(np.median(medians)), lo=low, hi=high, min=least)


@dataclass(frozen=True, slots=True)
class Spread:
    """How a cell's times scatter, in the unit of its samples. Nothing is dropped for any of them.

    Attributes:
        mad: median over rounds of how far a round's median is from the median of all rounds.
        p99: 99th percentile over all frames of all rounds, so a property of frames and not of rounds.
        outliers: frames outside Tukey's fences of their own round, counted.
    """

    mad: float
    p99: float
    outliers: int


def spread(per_round: Sequence[Sequence[float]]) -> Spread:
    """The scatter of a cell's times.

    Args:
        per_round: the samples of each round. Empty rounds are left out.

    Raises:
        ValueError: there is no sample at all, or one is not a positive number.
    """
    rounds = [samples for samples in per_round if len(samples)]
    if not rounds:
        raise ValueError("no round has a sample")
    medians = np.array([_median(samples) for samples in rounds])
    frames = np.concatenate([np.asarray(samples, np.float64) for samples in rounds])
    return Spread(
        mad=float(np.median(np.abs(medians - np.median(medians)))),
        p99=float(np.percentile(frames, 99)),
        outliers=sum(tukey_outliers(samples) for samples in rounds),
    )


def paired_ratio(
    a_per_round: Mapping[int, Sequence[float]], b_per_round: Mapping[int, Sequence[float]]
) -> Ratio | None:
    """How many times faster ``a`` is than ``b``: the median over common rounds of ``median(b) / median(a)``.

    Ratios are taken within rounds, as logarithms, so that drift that both share cancels and a against b is exactly
    the inverse of b against a. The interval is as in `median_of_rounds`, its resamples being of rounds.

    Args:
        a_per_round: samples by round number, in any unit that both share.
        b_per_round: the same of the other cell. Rounds that only one has are left out.

    Returns:
        None where no round has samples of both.

    Raises:
        ValueError: a sample is not a positive number.
    """
    logs = paired_logs(b_per_round, a_per_round)
    return ratio_of_logs(logs) if len(logs) else None


def paired_logs(
    a_per_round: Mapping[int, Sequence[float]], b_per_round: Mapping[int, Sequence[float]]
) -> NDArray[np.float64]:
    """``log(median(a) / median(b))`` of each round that both have, ``[rounds]`` in ascending order of rounds.

    Raises:
        ValueError: a sample is not a positive number.
    """
    common = [number for number in sorted(a_per_round) if len(a_per_round[number]) and len(b_per_round.get(number, ()))]
    return np.array([math.log(_median(a_per_round[number]) / _median(b_per_round[number])) for number in common])


def ratio_of_logs(logs: NDArray[np.float64]) -> Ratio:
    """The median of log-ratios ``[rounds]`` and its interval, as ratios."""
    low, high = interval(logs)
    return Ratio(ratio=math.exp(float(np.median(logs))), lo=math.exp(low), hi=math.exp(high))


def tukey_outliers(samples: Sequence[float]) -> int:
    """How many samples lie more than 1.5 interquartile ranges outside the quartiles. Counted, never dropped."""
    if not len(samples):
        return 0
    values = np.asarray(samples, np.float64)
    first, third = np.percentile(values, [25, 75])
    reach = 1.5 * (third - first)
    return int(np.count_nonzero((values < first - reach) | (values > third + reach)))


def _median(samples: Sequence[float]) -> float:
    values = np.asarray(samples, np.float64)
    if not (np.isfinite(values).all() and values.min() > 0):
        raise ValueError(f"a sample of {values.min()} is not a time")
    return float(np.median(values))


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """95 % bootstrap interval (percentile) of the median of ``values [rounds]``; their range where n < 3."""
    if len(values) < FEWEST_ROUNDS:
        return float(values.min()), float(values.max())
    found = scipy_stats.bootstrap(
        (values,), np.median, n_resamples=RESAMPLES, method="percentile", rng=np.random.default_rng(_SEED)
    ).confidence_interval
    return float(found.low), float(found.high)
