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

from cplab.cpus import allowed_cpus
from cplab.orchestrate import Run, Speech

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

#: How much longer either may take in the loop.
MOST = 1.1
#: Where threads had a CPU for less than this share of their time, something else was running.
QUIET_SHARE = 0.8
#: Read between calls to empty the caches, which the other one does in the loop: no thread of a team takes part in it.
_FLUSHED_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class Shared:
    """One of the two, alone and in the loop; samples in ns over all rounds.

    Attributes:
        alone: nothing between calls.
        cold: caches emptied between calls.
        in_loop: the other between calls.
    """

    alone: Int64
    cold: Int64
    in_loop: Int64

    @property
    def ratio(self) -> float:
        """Median in the loop over median alone."""
        return float(np.median(self.in_loop) / np.median(self.alone))

    @property
    def cold_ratio(self) -> float:
        """The same over the median with cold caches: what is left of it, threads may be the cause of."""
        return float(np.median(self.in_loop) / np.median(self.cold))

    @property
    def cause(self) -> str:
        """Why it takes more than 1.1 times as long in the loop, or "" where it does not."""
        if self.ratio <= MOST:
            return ""
        if self.cold_ratio <= MOST:
            return "the other empties the caches; threads are not the cause"
        return "more than emptied caches explain: threads of one pool may spin while the other runs"

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values."""
        samples = {f"{name}_ns": getattr(self, name).tolist() for name in ("alone", "cold", "in_loop")}
        return {**samples, "ratio": self.ratio, "cold_ratio": self.cold_ratio, "cause": self.cause}


@dataclass(frozen=True, slots=True)
class Pools:
    """What was measured.

    Attributes:
        talker: its steps.
        cp: the code predictor's frames.
        runtimes: OpenMP runtimes of this process by file; one pool serves both where there is one.
        cpu_share: how much of their time alone the threads had a CPU, 0..1.
    """

    talker: Shared
    cp: Shared
    runtimes: tuple[str, ...]
    cpu_share: float

    @property
    def at_peace(self) -> bool:
        """Whether neither takes more than 1.1 times as long in the loop."""
        return max(self.talker.ratio, self.cp.ratio) <= MOST

    @property
    def disturbed(self) -> bool:
        """Whether something else was running meanwhile, so that the ratios say little."""
        return self.cpu_share < QUIET_SHARE

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values."""
        both = {"talker": self.talker.as_dict(), "cp": self.cp.as_dict()}
        return {**both, "openmp": list(self.runtimes), "cpu_share": self.cpu_share}


def check_pools(
    speech: Speech, run: Run, rounds: int, threads: int, progress: Callable[[], None] | None = None
) -> Pools:
    """Measure both alone, alone with cold caches, and in the loop, in turns.

    Args:
        speech: whose loop it was.
        run: what it did; both get the same inputs alone.
        rounds: turns of all five.
        threads: of both.
        progress: called after each round.
    """
    filler = np.ones(_FLUSHED_BYTES // 4, np.float32)
    found: dict[str, list[Int64]] = {}
    wall_ns = busy_ns = 0

    def keep(name: str, samples: Int64) -> None:
        found.setdefault(name, []).append(samples)

    for _ in range(rounds):
        began, busy = time.perf_counter_ns(), time.process_time_ns()
        keep("talker", _talker_alone(speech, run, None))
        keep("cp", _cp_alone(speech, run, None))
        wall_ns += time.perf_counter_ns() - began
        busy_ns += time.process_time_ns() - busy
        keep("talker cold", _talker_alone(speech, run, filler))
        keep("cp cold", _cp_alone(speech, run, filler))
        again = speech.run(len(run.codes)).times
        keep("talker loop", again.talker)
        keep("cp loop", again.cp)
        if progress is not None:
            progress()
    samples = {name: np.concatenate(those) for name, those in found.items()}
    talker, cp = (Shared(samples[n], samples[f"{n} cold"], samples[f"{n} loop"]) for n in ("talker", "cp"))
    return Pools(talker, cp, openmp_runtimes(), busy_ns / wall_ns / min(threads, allowed_cpus()))


def _talker_alone(speech: Speech, run: Run, filler: Float32 | None) -> Int64:
    took = np.empty(len(run.inputs), np.int64)
    speech.talker.prefill(speech.prompt.prefill)
    for n, x in enumerate(run.inputs):
        _empty_caches(filler)
        began = time.perf_counter_ns()
        speech.talker.step(x)
        took[n] = time.perf_counter_ns() - began
    return took


def _cp_alone(speech: Speech, run: Run, filler: Float32 | None) -> Int64:
    took = np.empty(len(run.codes), np.int64)
    for n, (hidden, codes) in enumerate(zip(run.hidden, run.codes, strict=True)):
        embed = speech.embeddings.of_cb0[codes[0]]
        forced = None if speech.teacher is None else codes[None, 1:]
        _empty_caches(filler)
        began = time.perf_counter_ns()
        speech.predictor.predict(hidden[None], embed[None], forced=forced, noise=speech.noise(n))
        took[n] = time.perf_counter_ns() - began
    return took


def _empty_caches(filler: Float32 | None) -> None:
    if filler is not None:
        filler.max()


def openmp_runtimes() -> tuple[str, ...]:
    """Files of the OpenMP runtimes that this process has loaded."""
    return tuple(sorted({pool["filepath"] for pool in threadpool_info() if pool["user_api"] == "openmp"}))
