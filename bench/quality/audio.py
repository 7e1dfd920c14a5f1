"""How other codes sound: an implementation's choices beside float32's, through the official decoder.

Recorded codes are pinned, so the two say the same frames: CB0 is the recording's, the others are what each would have
chosen there. In a loop they would soon say different things, whose samples have nothing to do with each other.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bench.quality.job import QualityJob
from bench.quality.teacher_forced import NO_CODE, Answers
from bench.quality.truth import Int32, Truth
from bench.records.quality import AudioDistance
from cplab.recorded import read_codes
from cplab.spec import Spec
from cplab.speech import SpeechDecoder
from cplab.speech_distance import speech_distance


def audio_distance(job: QualityJob, spec: Spec, said: Answers, truth: Truth) -> AudioDistance | None:
    """The two sounds' distance; None where a frame ended in an error, which has no sound.

    Args:
        job: with ``recorded`` and ``decoder``.
        spec: of the model.
        said: an implementation's answers to ``truth``.
        truth: of the recorded codes.

    Raises:
        BadInputError: the decoder has other codebooks, or a recorded CB0 makes no sound.
        OfficialUnavailable: torch, transformers or qwen-tts is not installed.
        UnreadableModelError: the decoder's folder holds none.
    """
    if (said.codes == NO_CODE).any():
        return None
    decoder = SpeechDecoder(Path(job.decoder))
    cb0 = read_codes(Path(job.recorded), spec, decoder.codebook_size)[: len(truth), 0]
    theirs, ours = (decoder.decode(_whole(cb0, codes)) for codes in (truth.chosen, said.codes))
    found = speech_distance(theirs, ours, decoder.rate_hz)
    return AudioDistance(
        seconds=len(ours) / decoder.rate_hz,
        cosine=None if math.isnan(found.cosine) else found.cosine,
        rmse=found.rmse,
        mel_db=found.mel_db,
    )


def _whole(cb0: Int32, codes: Int32) -> Int32:
    """``[F]`` and ``[F, groups-1]`` -> ``[F, groups]``."""
    return np.concatenate([cb0[:, None], codes], axis=1)
