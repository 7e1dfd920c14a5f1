"""Do two thread pools fight? Talker and code predictor alone and in the loop, in turns within one run.

Both wait for their own threads by spinning for a while. Where they have a pool each, the idle one's spinning takes the
cores that the other needs; where both use the OpenMP runtime of the process (llama.cpp's usual build and numba's
``omp`` layer), its one pool serves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_info

from cplab.orchestrate import Run, Speech

Int64 = NDArray[np.int64]

#: How much longer either may take in the loop.
MOST = 1.1


@dataclass(frozen=True, slots=True)
class Pools:
    """Samples of both, ns, over all rounds.

    Attributes:
        talker_alone: steps, nothing between them.
        talker_in_loop: steps between the code predictor's frames.
        cp_alone: frames, nothing between them.
        cp_in_loop: frames between the talker's steps.
        runtimes: OpenMP runtimes of this process by file; one pool serves both where there is one.
    """

    talker_alone: Int64
    talker_in_loop: Int64
    cp_alone: Int64
    cp_in_loop: Int64
    runtimes: tuple[str, ...]

    @property
    def talker_ratio(self) -> float:
        """Median in the loop over median alone."""
        return float(np.median(self.talker_in_loop) / np.median(self.talker_alone))

    @property
    def cp_ratio(self) -> float:
        """The same of the code predictor."""
        return float(np.median(self.cp_in_loop) / np.median(self.cp_alone))

    @property
    def at_peace(self) -> bool:
        """Whether neither takes more than 1.1 times as long in the loop."""
        return max(self.talker_ratio, self.cp_ratio) <= MOST

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values."""
        samples = ("talker_alone", "talker_in_loop", "cp_alone", "cp_in_loop")
        return {
            **{f"{name}_ns": getattr(self, name).tolist() for name in samples},
            "talker_ratio": self.talker_ratio,
            "cp_ratio": self.cp_ratio,
            "openmp": list(self.runtimes),
        }


def check_pools(speech: Speech, run: Run, rounds: int, progress: Callable[[], None] | None = None) -> Pools:
    """Measure both alone on what a run fed them, and the loop again, in turns.

    Args:
        speech: whose loop it was.
        run: what it did; both get the same inputs alone.
        rounds: turns; in each comes the talker alone, the code predictor alone, and the loop.
        progress: called after each.
    """
    talker_alone, cp_alone, talker_in, cp_in = [], [], [], []
    frames = len(run.codes)
    for _ in range(rounds):
        talker_alone.append(_talker_alone(speech, run))
        cp_alone.append(_cp_alone(speech, run))
        again = speech.run(frames).times
        talker_in.append(again.talker)
        cp_in.append(again.cp)
        if progress is not None:
            progress()
    return Pools(
        talker_alone=np.concatenate(talker_alone),
        talker_in_loop=np.concatenate(talker_in),
        cp_alone=np.concatenate(cp_alone),
        cp_in_loop=np.concatenate(cp_in),
        runtimes=openmp_runtimes(),
    )


def _talker_alone(speech: Speech, run: Run) -> Int64:
    took = np.empty(len(run.inputs), np.int64)
    speech.talker.prefill(speech.prompt.prefill)
    for n, x in enumerate(run.inputs):
        began = time.perf_counter_ns()
        speech.talker.step(x)
        took[n] = time.perf_counter_ns() - began
    return took


def _cp_alone(speech: Speech, run: Run) -> Int64:
    took = np.empty(len(run.codes), np.int64)
    for n, (hidden, codes) in enumerate(zip(run.hidden, run.codes, strict=True)):
        embed = speech.embeddings.of_cb0[codes[0]]
        forced = None if speech.teacher is None else codes[None, 1:]
        began = time.perf_counter_ns()
        speech.predictor.predict(hidden[None], embed[None], forced=forced)
        took[n] = time.perf_counter_ns() - began
    return took


def openmp_runtimes() -> tuple[str, ...]:
    """Files of the OpenMP runtimes that this process has loaded."""
    return tuple(sorted({pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "openmp"}))
