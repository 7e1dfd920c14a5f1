"""The worker's half of ``bench profile``: frames with the lap timer and without it in turn, every code checked."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bench import perf_counters
from bench.records import ProfileSamples
from cplab.errors import VariantUnavailableError
from cplab.gating import CellGate, gate_cell
from cplab.golden import Golden
from cplab.laps import PARTS, Laps, TellsLaps
from cplab.model import Model
from cplab.variant import CodePredictor, Variant

#: Frames before any that counts, and frames under perf.
WARMUP_FRAMES = 2
COUNTED_FRAMES = 10


def gated(variant: Variant, model: Model, threads: int, golden: Golden | None, frames: int | None) -> CellGate:
    """Build and judge a variant that can tell where its time goes.

    Raises:
        VariantUnavailableError: it cannot tell; raised before the gate's work.
    """

    def build(model: Model, threads: int) -> CodePredictor:
        predictor = variant.build(model, threads)
        if not isinstance(predictor, TellsLaps):
            raise VariantUnavailableError(
                f"{variant.name} cannot tell where its time goes: it has no method profile (cplab.laps.TellsLaps)"
            )
        return predictor

    return gate_cell(replace(variant, build=build), model, threads, golden=golden, frames=frames)


def profile_frames(predictor: CodePredictor, golden: Golden, frames: int) -> tuple[ProfileSamples, str]:
    """Run pairs of frames, the lap timer on in one of each, which comes first in every other pair.

    Args:
        predictor: one that tells its laps.
        golden: inputs and codes; frames are taken in order, and again from the first where there are too few.
        frames: how many pairs.

    Returns:
        The samples, and one line on the first wrong code or "".
    """
    assert isinstance(predictor, TellsLaps)
    run = _Frames(predictor, golden)
    for _ in range(WARMUP_FRAMES):
        run.untraced()
        run.traced()
    untraced_ns, traced = [], []
    for pair in range(frames):
        if pair % 2:
            traced.append(run.traced())
            untraced_ns.append(run.untraced())
        else:
            untraced_ns.append(run.untraced())
            traced.append(run.traced())

    def counted() -> None:
        for _ in range(COUNTED_FRAMES):
            run.untraced()

    counters = perf_counters.count(counted)
    samples = ProfileSamples(
        parts=list(PARTS),
        part_bytes=traced[0][1].part_bytes.tolist(),
        traced_ns=[wall_ns for wall_ns, _ in traced],
        untraced_ns=untraced_ns,
        laps_ns=[laps.ns.tolist() for _, laps in traced],
        counters={event: value / COUNTED_FRAMES for event, value in counters.counts.items()},
        counters_reason=counters.reason,
    )
    return samples, run.wrong


class _Frames:
    """A golden's frames, one a call, round and round."""

    def __init__(self, predictor: CodePredictor, golden: Golden) -> None:
        self._predictor, self._golden = predictor, golden
        self._next = 0
        self.wrong = ""

    def untraced(self) -> int:
        """Nanoseconds of a call as a user would make it."""
        hidden, cb0 = self._inputs()
        started = time.perf_counter_ns()
        codes = self._predictor.predict(hidden, cb0)
        elapsed = time.perf_counter_ns() - started
        self._check(codes)
        return elapsed

    def traced(self) -> tuple[int, Laps]:
        """Nanoseconds of a call with the lap timer on, and the laps."""
        hidden, cb0 = self._inputs()
        assert isinstance(self._predictor, TellsLaps)
        started = time.perf_counter_ns()
        laps = self._predictor.profile(hidden, cb0)
        elapsed = time.perf_counter_ns() - started
        self._check(laps.codes)
        return elapsed, laps

    def _inputs(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        i = self._next % len(self._golden)
        return self._golden.hidden[i : i + 1].copy(), self._golden.cb0_embed[i : i + 1].copy()

    def _check(self, codes: NDArray[np.int32]) -> None:
        i = self._next % len(self._golden)
        if codes.tolist() != self._golden.codes[i : i + 1].tolist():
            self.wrong = self.wrong or f"frame {i}: other codes than the golden's while it was profiled"
        self._next += 1
