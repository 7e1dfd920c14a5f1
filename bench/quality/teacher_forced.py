"""The core of the measurement: logits of an implementation beside those of the float32 law, codes pinned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.quality import rows
from bench.quality.intervals import of_mean, of_root_mean, of_weighted
from bench.quality.truth import Float32, Int32, Truth
from bench.records.quality import TeacherForced
from cplab.errors import BadInputError, CplabError
from cplab.variant import CodePredictor, Trace, takes_forced

#: ``(hidden [F, W], cb0_embed [F, W], forced [F, groups-1]) -> logits [F, groups-1, vocab]`` f32.
GivesLogits = Callable[[Float32, Float32, Int32], Float32]

#: What a code counts as that was never given.
NO_CODE = -1


@dataclass(frozen=True, slots=True)
class Answers:
    """What an implementation said where codes were pinned.

    Attributes:
        codes: ``[F, groups-1]`` int32 that it would choose; `NO_CODE` in frames that ended in an error.
        logits: ``[F, groups-1, vocab]`` f32, NaN in frames that ended in an error; None where it gives none.
    """

    codes: Int32
    logits: Float32 | None


def measure(producer: CodePredictor | GivesLogits, truth: Truth) -> TeacherForced:
    """Every teacher-forced figure of an implementation.

    Args:
        producer: a predictor, or a function that gives logits, such as `cplab.naive.Naive.scored`.
        truth: what it is held against, and the codes that are pinned.

    Raises:
        BadInputError: the predictor takes no forced codes, or its codes or logits have another shape.
    """
    return figures(answers(producer, truth), truth)


def answers(producer: CodePredictor | GivesLogits, truth: Truth) -> Answers:
    """What an implementation says of a truth's frames, one frame at a time; see `measure`."""
    return _predicted(producer, truth) if isinstance(producer, CodePredictor) else _given(producer, truth)


def _given(gives: GivesLogits, truth: Truth) -> Answers:
    logits: Float32 = np.asarray(gives(truth.hidden, truth.cb0_embed, truth.codes))
    if logits.shape != truth.logits.shape:
        raise BadInputError(f"logits are {list(logits.shape)}, {list(truth.logits.shape)} is wanted")
    finite = np.asarray(np.isfinite(logits).all(axis=-1))
    codes = np.where(finite, np.argmax(np.where(finite[..., None], logits, 0), axis=-1), NO_CODE)
    return Answers(codes.astype(np.int32), logits)


def _predicted(predictor: CodePredictor, truth: Truth) -> Answers:
    if not takes_forced(predictor):
        raise BadInputError("it takes no forced codes, so nothing can be pinned")
    codes = np.full(truth.codes.shape, NO_CODE, np.int32)
    logits = np.full(truth.logits.shape, np.nan, np.float32)
    silent = False
    for i in range(len(truth)):
        part, trace = slice(i, i + 1), Trace()
        try:
            said = predictor.predict(
                truth.hidden[part].copy(), truth.cb0_embed[part].copy(), forced=truth.codes[part].copy(), trace=trace
            )
        except CplabError:
            continue
        if said.shape != (1, truth.codes.shape[1]):
            raise BadInputError(f"predict returned {list(said.shape)}, [1, {truth.codes.shape[1]}] is wanted")
        codes[i] = said[0]
        silent = silent or trace.logits is None
        if trace.logits is not None:
            if trace.logits.shape != (1, *truth.logits.shape[1:]):
                raise BadInputError(f"logits are {list(trace.logits.shape)}, {[1, *truth.logits.shape[1:]]} is wanted")
            logits[i] = trace.logits[0]
    return Answers(codes, None if silent else logits)


def figures(said: Answers, truth: Truth) -> TeacherForced:
    """Answers and truth as figures."""
    same = said.codes == truth.chosen
    bad = np.zeros(same.shape, np.bool_) if said.logits is None else ~np.isfinite(said.logits).all(axis=-1)
    bad |= said.codes == NO_CODE
    same &= ~bad
    margins = truth.margins.astype(np.float64)
    found = TeacherForced(
        frames=len(truth),
        rows=same.size,
        non_finite=int(bad.sum()),
        agreement=of_mean(same.mean(axis=1)),
        agreement_by_codebook=same.mean(axis=0).tolist(),
        agreement_by_margin=of_weighted((margins * same).sum(axis=1), margins.sum(axis=1)),
    )
    if said.logits is None or bad.any():
        return found
    kl = rows.kl_divergence(said.logits, truth.logits)
    change = rows.probability_change(said.logits, truth.logits)
    top = rows.top_overlap(said.logits, truth.logits)
    square = rows.mean_square(said.logits, truth.logits)
    cosine = rows.cosine(said.logits, truth.logits)
    worst = np.unravel_index(int(np.argmax(kl)), kl.shape)
    return found.model_copy(
        update={
            "top5": of_mean(top.mean(axis=1)),
            "top5_by_codebook": top.mean(axis=0).tolist(),
            "kl": of_mean(kl.mean(axis=1)),
            "kl_median": float(np.median(kl)),
            "kl_p99": float(np.percentile(kl, 99)),
            "kl_worst": float(kl.max()),
            "kl_worst_at": (int(worst[0]), int(worst[1]) + 1),
            "kl_by_codebook": kl.mean(axis=0).tolist(),
            "delta_p": float(change.mean()),
            "delta_p_rms": float(np.sqrt(np.mean(change * change))),
            "rmse": of_root_mean(square.mean(axis=1)),
            "rmse_by_codebook": np.sqrt(square.mean(axis=0)).tolist(),
            "cosine": of_mean(cosine.mean(axis=1)),
            "cosine_worst": float(cosine.min()),
        }
    )
