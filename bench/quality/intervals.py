"""Figures with bootstrap intervals whose independent unit is the frame.

Codes of one frame follow from one another, so that rows are no sample of their own: whole frames are drawn. What is
drawn from are the frames that were measured; an interval of no width says that these frames agree, and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bench.records.quality import Estimate

Float64 = NDArray[np.float64]

RESAMPLES = 2000
FEWEST_FRAMES = 3
_SEED = 20_261_202


def of_mean(per_frame: Float64) -> Estimate:
    """The mean over frames of ``per_frame [F]``."""
    return _estimate((per_frame,), lambda x, axis=-1: np.mean(x, axis=axis))


def of_root_mean(per_frame: Float64) -> Estimate:
    """The square root of the mean over frames of ``per_frame [F]``, such as mean squares."""
    return _estimate((per_frame,), lambda x, axis=-1: np.sqrt(np.mean(x, axis=axis)))


def of_weighted(values: Float64, weights: Float64) -> Estimate | None:
    """Sum of ``values [F]`` over sum of ``weights [F]``, both drawn together; None where no weight is above 0."""
    if not weights.sum() > 0:
        return None

    def ratio(v: Float64, w: Float64, axis: int = -1) -> Float64:
        total = w.sum(axis=axis)
        share: Float64 = np.where(total > 0, v.sum(axis=axis) / np.where(total > 0, total, 1), np.nan)
        return share

    return _estimate((values, weights), ratio)


def _estimate(data: tuple[Float64, ...], statistic: Callable[..., Any]) -> Estimate:
    value = float(statistic(*data))
    if len(data[0]) < FEWEST_FRAMES:
        alone = np.array([float(statistic(*(x[i : i + 1] for x in data))) for i in range(len(data[0]))])
        return Estimate(value=value, lo=float(np.nanmin(alone)), hi=float(np.nanmax(alone)))
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=RESAMPLES,
        method="percentile",
        paired=len(data) > 1,
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return Estimate(value=value, lo=float(found.low), hi=float(found.high))
