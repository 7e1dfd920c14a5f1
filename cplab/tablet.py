"""The figures that this lab began with: one utterance on an Android tablet, as the Kazeia engine printed them.

CPU, 4 threads, F16 weights, the code predictor recomputing all positions in each pass. Nothing here was measured by the
lab; whatever shows these figures says that they are another machine's.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Utterance:
    """One utterance; times as printed there, so that sums may differ in the last digit.

    Attributes:
        name: machine and threads.
        positions: of the talker's prefill.
        prefill_s: the talker's prefill.
        steps: frames of the loop.
        audio_s: what they came to.
        loop_s: the whole loop.
        talker_s: the talker's part of it.
        cp_s: the code predictor's.
        talker_ms: the talker's step.
        cp_ms: the code predictor's frame, 15 passes.
        total_s: prefill and loop.
        rtf: the total over ``audio_s``.
    """

    name: str
    positions: int
    prefill_s: float
    steps: int
    audio_s: float
    loop_s: float
    talker_s: float
    cp_s: float
    talker_ms: float
    cp_ms: float
    total_s: float
    rtf: float


TABLET = Utterance(
    name="Kazeia tablet, CPU 4 threads",
    positions=19,
    prefill_s=0.124,
    steps=26,
    audio_s=2.17,
    loop_s=7.705,
    talker_s=0.763,
    cp_s=6.942,
    talker_ms=29.3,
    cp_ms=267.0,
    total_s=7.829,
    rtf=3.61,
)
