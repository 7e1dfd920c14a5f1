"""Free-running frames: an implementation's own codes are fed back, and one early difference forks the rest."""

from __future__ import annotations

import numpy as np

from bench.quality.intervals import of_mean
from bench.quality.teacher_forced import NO_CODE
from bench.quality.truth import Float32, Int32
from bench.records.quality import FreeRunning
from cplab.errors import CplabError
from cplab.variant import CodePredictor


def free_running(predictor: CodePredictor, hidden: Float32, cb0_embed: Float32, codes: Int32) -> FreeRunning:
    """Run frames one at a time and count where their codes are the model's.

    Args:
        predictor: any.
        hidden: ``[F, talker_hidden]``.
        cb0_embed: ``[F, talker_hidden]``.
        codes: the model's own, free-running, ``[F, groups-1]``.
    """
    said = np.full(codes.shape, NO_CODE, np.int32)
    failed = 0
    for i in range(len(codes)):
        part = slice(i, i + 1)
        try:
            said[i] = predictor.predict(hidden[part].copy(), cb0_embed[part].copy())[0]
        except CplabError:
            failed += 1
    same = said == codes
    passes = codes.shape[1]
    before = np.where(same.all(axis=1), passes, np.argmin(same, axis=1))
    first = np.bincount(before, minlength=passes + 1)
    return FreeRunning(
        frames=len(codes),
        failed=failed,
        agreement=of_mean(same.mean(axis=1)),
        agreement_by_codebook=same.mean(axis=0).tolist(),
        frames_matched=int(first[passes]),
        first_difference=first[:passes].tolist(),
        codes_before=of_mean(before.astype(np.float64)),
    )
