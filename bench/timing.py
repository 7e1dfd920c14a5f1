"""What a timed worker does: calls on golden frames, their codes checked afterwards, and readings for the roof."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.cell_conditions import Watch
from bench.energy import EnergyMeter
from bench.job import Job
from bench.records import CellRecord, GateOutcome, RoofSample
from bench.timed_codes import TimedCodes
from bench.worker_record import facts_of, record_of

if TYPE_CHECKING:
    from cplab.golden import Golden
    from cplab.model import Model
    from cplab.variant import CodePredictor, Variant

#: Calls after the timed ones that tell the time of each pass.
TRACED_CALLS = 1


def timed(job: Job, variant: Variant, model: Model, started: float) -> CellRecord:
    """Time a cell: a record with samples, or one that says which timed call gave other codes than it must.

    Args:
        job: what to do.
        variant: the implementation.
        model: the weights as the file holds them.
        started: `time.perf_counter` when the worker began to load.
    """
    ready = _make_ready(job, variant, model, started)
    predictor, golden = ready.predictor, ready.golden
    # No input comes twice in a process, so that a variant which remembers results gains nothing by it.
    fresh = iter(range(job.first_frame, job.first_frame + len(golden)))
    first_ns, warmup = _warmed_up(ready, job, fresh)
    watch, energy = Watch(job.cpus, job.threads), EnergyMeter()
    samples, frame_ids = [], []
    roof = _Roof(predictor, job.threads)
    for i, index in enumerate(islice(fresh, job.frames)):
        with energy:
            samples.append(timed_call(predictor, golden, index, ready.codes, job.batch))
        frame_ids.append(index % len(golden))
        if i < job.roof_reads:
            roof.read(job.round * job.roof_reads + i)
    traced = range(TRACED_CALLS if job.batch == 1 else 0)
    pass_ns = [_traced_passes(predictor, golden, job.first_frame + i) for i in traced]
    load = watch.told() | energy.per_stretch()
    return _judged(
        job,
        ready,
        load,
        samples_ns=samples,
        pass_ns=[p for p in pass_ns if p],
        frame_ids=frame_ids,
        warmup_ns=warmup,
        first_call_ns=first_ns,
        roof=roof.samples,
    )


def soak(job: Job, variant: Variant, model: Model, started: float) -> CellRecord:
    """Run a cell frame after frame for ``job.seconds``, and tell when each frame began; arguments as of `timed`."""
    ready = _make_ready(job, variant, model, started)
    golden = ready.golden
    # There are more frames than inputs here, so these come round again: a soak is about heat, not about speed.
    turn = cycle(range(len(golden)))
    first_ns, warmup = _warmed_up(ready, job, turn)
    watch, energy = Watch(job.cpus, job.threads), EnergyMeter()
    samples: list[int] = []
    began: list[int] = []
    frame_ids: list[int] = []
    zero = time.perf_counter_ns()
    while not began or time.perf_counter_ns() - zero < job.seconds * 1e9:
        began.append(time.perf_counter_ns() - zero if began else 0)
        frame_ids.append(next(turn))
        with energy:
            samples.append(timed_call(ready.predictor, golden, frame_ids[-1], ready.codes))
    load = watch.told() | energy.per_stretch()
    return _judged(
        job,
        ready,
        load,
        samples_ns=samples,
        sample_at_ns=began,
        frame_ids=frame_ids,
        warmup_ns=warmup,
        first_call_ns=first_ns,
    )


@dataclass(frozen=True, slots=True)
class _Ready:
    """A predictor that has been built, and what its codes are held against."""

    predictor: CodePredictor
    golden: Golden
    codes: TimedCodes
    lossy: int
    load_s: float
    compile_s: float


def _make_ready(job: Job, variant: Variant, model: Model, started: float) -> _Ready:
    from cplab.gating import LOSSY_FRAMES, law_of
    from cplab.golden import load_golden
    from cplab.golden_making import golden_for
    from cplab.kernels import compiling

    as_it_is = not job.lossy and law_of(variant, model) == "f32"
    judged, lossy = (model, 0) if as_it_is else model.repacked(variant.format)
    if as_it_is and job.golden:
        golden = load_golden(Path(job.golden))
    else:
        golden = golden_for(judged, LOSSY_FRAMES, law_of(variant, model))  # the gate's, found again
    predictor = variant.build(judged, job.threads)
    compile_s = compiling.compile_seconds()
    load_s = time.perf_counter() - started - compile_s
    return _Ready(predictor, golden, TimedCodes(predictor, golden, variant.tier), lossy, load_s, compile_s)


def _warmed_up(ready: _Ready, job: Job, frames: Iterator[int]) -> tuple[int, list[int]]:
    """Nanoseconds of the first call and of the warm-up's, whose codes are kept too."""
    warmups = min(job.warmup, max(0, len(ready.golden) - 2))
    first_ns, *warmup = [
        timed_call(ready.predictor, ready.golden, next(frames), ready.codes, job.batch) for _ in range(1 + warmups)
    ]
    return first_ns, warmup


def _judged(job: Job, ready: _Ready, load: dict[str, Any], **measured: Any) -> CellRecord:
    """The record of what was measured, which has no times where a call gave other codes than it must."""
    import psutil

    wrong = ready.codes.wrong()
    if wrong:
        return record_of(
            job, GateOutcome(status="fail", detail=wrong), reason=wrong, facts=facts_of(job, ready.predictor)
        )
    whose = "its own" if ready.codes.own else "the golden's"
    frames = len(measured["samples_ns"])
    return record_of(
        job,
        GateOutcome(status="pass", detail=f"codes of all {frames * job.batch} timed frames are {whose}"),
        load_s=round(ready.load_s, 4),
        compile_s=round(ready.compile_s, 4),
        rss_mb=round(psutil.Process().memory_info().rss / 1e6, 1),
        bytes_per_frame=ready.predictor.bytes_per_frame,
        passes_per_frame=ready.predictor.passes_per_frame,
        facts=facts_of(job, ready.predictor)
        | load
        | {"lossy_weights": ready.lossy, "golden_frames": len(ready.golden)},
        **measured,
    )


def timed_call(
    predictor: CodePredictor, golden: Golden, index: int, kept: TimedCodes | None = None, batch: int = 1
) -> int:
    """One call, as a user would make it, on a golden frame or on as many as ``batch`` says from it on: nanoseconds.

    Its codes are kept to be judged. A batch that is larger than the golden has frames twice.
    """
    frames = [(index + b) % len(golden) for b in range(batch)]
    hidden, cb0 = golden.hidden[frames], golden.cb0_embed[frames]
    started = time.perf_counter_ns()
    codes = predictor.predict(hidden, cb0)
    elapsed = time.perf_counter_ns() - started
    if kept is not None:
        kept.add(frames, codes)
    return elapsed


def _traced_passes(predictor: CodePredictor, golden: Golden, index: int) -> list[int]:
    """Nanoseconds of each pass of one call that is not among the samples."""
    from cplab.variant import Trace

    i = index % len(golden)
    trace = Trace()
    predictor.predict(golden.hidden[i : i + 1].copy(), golden.cb0_embed[i : i + 1].copy(), trace=trace)
    return [int(n) for n in trace.pass_ns]


class _Roof:
    """Readings of a predictor's own buffers, a configuration each in turn."""

    def __init__(self, predictor: CodePredictor, threads: int) -> None:
        from cplab.kernels import reading

        self.reading = reading
        self.table = reading.stream_table(predictor.streams())
        self.threads = threads
        self.samples: list[RoofSample] = []

    def read(self, turn: int) -> None:
        """Time one reading with the configuration whose turn it is."""
        if not len(self.table):
            return
        rows, ahead = self.reading.CONFIGURATIONS[turn % len(self.reading.CONFIGURATIONS)]
        ns = self.reading.time_read(self.table, self.threads, rows, ahead)
        total = int((self.table[:, 1] * self.table[:, 2]).sum())
        self.samples.append(RoofSample(prefetch_bytes=ahead, rows=rows, ns=ns, bytes=total))
