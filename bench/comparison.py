"""Whether one cell is faster than another: the rules of a verdict.

The unit is the round. Within one run the two cells are compared round by round, as logarithms of ratios, so that what
slowed a whole round down cancels. Four things must agree before a cell is called faster or slower: there are at least 6
rounds; the 95 % bootstrap interval of the median ratio excludes 1; a sign-flip permutation test of the signed ranks
says p <= 0.05; and the change is beyond 2 % and beyond the noise that the same run showed for one cell measured as two
(A/A). "same" is a finding too: the whole interval lies within that limit. All else is undecided, and so is everything
that lies within a noise of `TOO_NOISY` or more: "same" to that would say nothing.

What that finds is measured on made data, 500 runs of each kind, by `tests/bench/test_comparison_power.py`. With 12
rounds of 1.5 % noise a change of 5 % is found practically always and one of 3 % about nine times in ten; with 6 rounds
3 % is found about every other time. Where there is no change, one is seen in well under 5 of 100 runs, be the machine
drifting (in abba order) or each process in one of two states.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from bench.records import Comparison, Ratio, Verdict
from bench.stats import RESAMPLES, ratio_of_logs

#: A verdict other than undecided wants so many rounds; with 5 the smallest p of a sign-flip test is 0.06.
FEWEST_TO_JUDGE = 6
#: A change below this share is none worth telling, however sure.
LEAST_CHANGE = 0.02
MOST_P = 0.05
#: A/A noise, as a share, within which nothing worth telling could be seen.
TOO_NOISY = 0.5
#: Up to 10 rounds every way to flip signs is tried, beyond it as many by chance.
FLIPS = 1999
#: More rounds than this are not worth promising.
MOST_MORE = 200

_SEED = 20_260_131


def compare(
    a: str,
    b: str,
    logs: NDArray[np.float64],
    *,
    least_change: float = LEAST_CHANGE,
    noise: float | None = None,
) -> Comparison:
    """Judge cell ``b`` beside cell ``a`` of the same run.

    Args:
        a: name of what it is compared with.
        b: name of what is judged.
        logs: ``log(time of b / time of a)`` of each common round, ``[rounds]`` (`bench.stats.paired_logs`).
        least_change: the share that a change must exceed.
        noise: the run's A/A noise, which it must exceed too, where it was measured.

    Raises:
        ValueError: there is no round.
    """
    if not len(logs):
        raise ValueError(f"{a} and {b} have no round in common")
    return _judged(a, b, ratio_of_logs(logs), _sign_flip_p(logs), len(logs), least_change, noise)


def compare_apart(
    a: str,
    b: str,
    logs_a: NDArray[np.float64],
    logs_b: NDArray[np.float64],
    *,
    least_change: float = LEAST_CHANGE,
    noise: float | None = None,
    note: str = "",
) -> Comparison:
    """Judge cell ``b`` beside cell ``a`` of another run: no pairs, so the two are resampled apart.

    Args:
        a: name of what it is compared with.
        b: name of what is judged.
        logs_a: a logarithm for each round of ``a``, of its time or of its time over its own baseline's, ``[rounds]``.
        logs_b: the same of ``b``.
        least_change: the share that a change must exceed.
        noise: the larger A/A noise of the two runs, where one was measured.
        note: what a reader must know of the comparison.

    Raises:
        ValueError: one has no round.
    """
    fewest = min(len(logs_a), len(logs_b))
    if not fewest:
        raise ValueError(f"{a} or {b} has no round")
    difference = float(np.median(logs_b) - np.median(logs_a))
    low, high = _interval_apart(logs_a, logs_b)
    ratio = Ratio(ratio=math.exp(difference), lo=math.exp(low), hi=math.exp(high))
    p = float(scipy_stats.mannwhitneyu(logs_a, logs_b).pvalue) if fewest > 1 else None
    return _judged(a, b, ratio, p, fewest, least_change, noise, note)


def noise_of(ratio: Ratio) -> float:
    """The A/A noise that a ratio of a cell and itself shows: how far its interval reaches from 1, as a share."""
    return math.expm1(max(abs(math.log(ratio.lo)), abs(math.log(ratio.hi))))


def limit_of(least_change: float, noise: float | None) -> float:
    """The share that a change must exceed."""
    return max(least_change, noise or 0.0)


def in_words(found: Comparison) -> str:
    """The verdict with its reason: ``slower by 4.9 %``, ``undecided, about 7 more rounds``."""
    change = abs(found.ratio.ratio - 1)
    if found.too_noisy:
        return "undecided: this machine is too noisy to tell"
    if found.verdict in ("faster", "slower"):
        return f"{found.verdict} by {change:.1%}".replace("%", " %")
    if found.verdict == "same":
        return "same"
    if found.more_rounds is None:
        return f"undecided, and would be after {MOST_MORE} more rounds"
    return f"undecided, about {found.more_rounds} more round{'s' if found.more_rounds > 1 else ''}"


def _judged(
    a: str, b: str, ratio: Ratio, p: float | None, rounds: int, least_change: float, noise: float | None, note: str = ""
) -> Comparison:
    limit = limit_of(least_change, noise)
    verdict = _verdict(ratio, p, rounds, limit)
    too_noisy = noise is not None and noise >= max(TOO_NOISY, least_change) and verdict in ("same", "undecided")
    verdict = "undecided" if too_noisy else verdict
    more = _more_rounds(ratio, rounds, limit) if verdict == "undecided" and not too_noisy else None
    return Comparison(
        a=a,
        b=b,
        verdict=verdict,
        ratio=ratio,
        p=p,
        rounds=rounds,
        limit=limit,
        more_rounds=more,
        note=note,
        too_noisy=too_noisy,
    )


def _verdict(ratio: Ratio, p: float | None, rounds: int, limit: float) -> Verdict:
    if rounds < FEWEST_TO_JUDGE or p is None:
        return "undecided"
    beyond = abs(math.log(ratio.ratio)) > math.log1p(limit)
    if beyond and not ratio.lo <= 1 <= ratio.hi and p <= MOST_P:
        return "slower" if ratio.ratio > 1 else "faster"
    within = max(abs(math.log(ratio.lo)), abs(math.log(ratio.hi))) <= math.log1p(limit)
    return "same" if within else "undecided"


def _more_rounds(ratio: Ratio, rounds: int, limit: float) -> int | None:
    """How many more rounds would narrow the interval enough, as it narrows with the root of their number."""
    missing = max(0, FEWEST_TO_JUDGE - rounds)
    if rounds < 3:
        return missing  # the spread is not known yet
    change, allowed = abs(math.log(ratio.ratio)), math.log1p(limit)
    half = math.log(ratio.hi / ratio.lo) / 2
    # Either 1 must fall out of the interval, or the interval into the limit.
    wanted = change if change > allowed else allowed - change
    if wanted <= 0:
        return None
    more = max(missing, 1, math.ceil(rounds * ((half / wanted) ** 2 - 1)))
    return more if more <= MOST_MORE else None


def _sign_flip_p(logs: NDArray[np.float64]) -> float | None:
    """Two-sided p of "the sign of each log-ratio is a coin's": by ranks, so that one wild round decides nothing."""
    if len(logs) < 2:
        return None
    signed_ranks = np.sign(logs) * scipy_stats.rankdata(np.abs(logs))
    found = scipy_stats.permutation_test(
        (signed_ranks,),
        _mean,
        permutation_type="samples",
        n_resamples=FLIPS,
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    )
    return float(found.pvalue)


def _mean(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.asarray(np.mean(values, axis=axis))


def _interval_apart(logs_a: NDArray[np.float64], logs_b: NDArray[np.float64]) -> tuple[float, float]:
    if min(len(logs_a), len(logs_b)) < 2:
        return float(logs_b.min() - logs_a.max()), float(logs_b.max() - logs_a.min())
    found = scipy_stats.bootstrap(
        (logs_a, logs_b),
        _difference,
        n_resamples=RESAMPLES,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(_SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def _difference(a: NDArray[np.float64], b: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.asarray(np.median(b, axis=axis) - np.median(a, axis=axis))
