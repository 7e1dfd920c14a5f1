"""The tolerance that calibrates itself: no further from float32 than twice the naive implementation.

The gate asks this of tier ``quality``. Here it is asked of the lab's own quantised variants too, which the gate holds
to the bits of their own law: that says how well they follow the law, and this how good the law is.
"""

from __future__ import annotations

import numpy as np

from bench.quality.teacher_forced import Answers, figures
from bench.quality.trials import Trials
from bench.quality.truth import Float32, Truth
from bench.records.quality import NaiveDistance
from bench.records.recipe import Trial
from cplab.formats import STORED
from cplab.gate_quality import FACTOR, Distance, rms
from cplab.naive import ACTIVATIONS, Naive
from cplab.recipe import Recipe


def naive_distance(logits: Float32, truth: Truth, naive: Naive, kind: str) -> NaiveDistance:
    """An implementation's teacher-forced logits beside the naive implementation's.

    Args:
        logits: the implementation's, ``[F, groups-1, vocab]``, of the truth's frames.
        truth: the float32 law's.
        naive: of the precision that the implementation says it has.
        kind: name of that precision, such as ``q8_0``, ``stored`` or ``mix``.
    """
    theirs = naive.scored(truth.hidden, truth.cb0_embed, truth.codes)
    finite = bool(np.isfinite(theirs).all())
    with np.errstate(invalid="ignore"):
        pairs = [(rms(a - t), rms(b - t)) for a, b, t in zip(logits, theirs, truth.logits, strict=True)]
    distances = [Distance(i, *pair) for i, pair in enumerate(pairs)]
    ratios = np.array([d.ratio for d in distances])
    worst = distances[int(np.argmax(np.where(np.isnan(ratios), np.inf, ratios)))]
    told = next((d for d in distances if not d.passed), worst)
    overflow = f"the naive {kind} implementation overflows on this model: there is no measure, and nothing passes"
    known = np.isfinite(ratios).all()
    return NaiveDistance(
        format=kind,
        rmse=rms(theirs - truth.logits) if finite else None,
        agreement=figures(_answers(theirs), truth).agreement.value if finite else None,
        ratio=worst.ratio if known else None,
        ratio_frame=worst.frame if known else None,
        ratio_median=float(np.median(ratios)) if known else None,
        allowed=FACTOR,
        passed=all(d.passed for d in distances),
        detail=str(told) if finite else overflow,
    )


def recipe_distance(trials: Trials, trial: Trial) -> NaiveDistance | None:
    """A recipe on the lab's kernels beside the naive implementation of the same mix of formats.

    Args:
        trials: of the model, whose original weights both round.
        trial: the recipe.

    Returns:
        None where it changes nothing, or where a logit is not finite.
    """
    recipe = Recipe(trial.formats)
    if not trial.formats or trial.lost.non_finite:
        return None
    logits = trials.logits(trial.formats)
    return naive_distance(logits, trials.truth, Naive(trials.model, recipe.by_matrix(trials.model)), "mix")


def has_measure(kind: str) -> bool:
    """Whether a naive rounding is known for what a variant says its format is."""
    return kind in ACTIVATIONS or kind == STORED


def _answers(logits: Float32) -> Answers:
    return Answers(np.argmax(logits, axis=-1).astype(np.int32), logits)
