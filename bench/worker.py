"""The worker process: ``python -m bench.worker RESULT_FILE`` with a `bench.job.Job` on standard input.

One cell, one phase, one process: nothing that an implementation does can take the sweep down or warm up the next one.
The process pins itself before numba is imported, so that the thread pool is born on the right CPUs. The result is a
`bench.records.CellRecord` as JSON, written at once at the end: a worker that dies leaves none.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.job import Job
from bench.records import CellRecord, CheckResult, GateOutcome, RoofSample
from bench.timed_codes import TimedCodes
from cplab.orphans import die_with_parent

#: Calls after the timed ones that tell the time of each pass.
TRACED_CALLS = 1

if TYPE_CHECKING:
    from cplab.gating import CellGate
    from cplab.golden import Golden
    from cplab.model import Model
    from cplab.variant import CodePredictor, Variant


def main() -> int:
    """Read the job, do it, write the record; errors that the lab knows become a record too."""
    die_with_parent()
    job = Job.model_validate_json(sys.stdin.read())
    if job.cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cpus)
    from cplab.errors import CplabError, VariantUnavailableError

    try:
        record = _run(job)
    except VariantUnavailableError as error:
        record = _record(job, GateOutcome(status="skip", detail=str(error)), reason=str(error))
    except CplabError as error:
        record = _record(job, GateOutcome(status="fail", detail=str(error)), reason=str(error))
    except OSError as error:
        told = f"{error.filename or 'a file'}: {error.strerror or error}"
        record = _record(job, GateOutcome(status="fail", detail=told), reason=told)
    result = Path(sys.argv[1])
    temporary = result.with_suffix(".tmp")
    temporary.write_text(record.model_dump_json(by_alias=True), encoding="utf-8")
    temporary.replace(result)
    return 0


def _run(job: Job) -> CellRecord:
    from cplab.sources import load_model
    from cplab.variant import get_variant, load_variant_file

    for path in job.variant_files:
        load_variant_file(Path(path))
    if job.phase == "prepare":
        return _prepare(job)
    variant = get_variant(job.variant)
    started = time.perf_counter()
    model = load_model(job.model)
    model.known_digest = job.digest or None
    if job.phase == "gate":
        model.check_finite()
        return _gate(job, variant, model)
    if job.phase == "profile":
        return _profile(job, variant, model)
    return _timed(job, variant, model, started)


def _prepare(job: Job) -> CellRecord:
    from cplab.golden import find_golden_path, load_golden
    from cplab.golden_making import golden_for
    from cplab.kernels.compiling import compile_all
    from cplab.sources import load_model

    model = load_model(job.model)
    model.check_finite()
    golden = load_golden(Path(job.golden)) if job.golden else golden_for(model)
    golden.require(model)
    compile_s = compile_all()
    facts = {
        "digest": model.digest(),
        "spec": model.spec.as_dict(),
        "synthetic": model.synthetic,
        "golden": job.golden or str(find_golden_path(model) or ""),
        "golden_frames": len(golden),
        "golden_reference": str(golden.provenance.get("reference", "")),
    }
    return _record(job, GateOutcome(status="skip", detail="prepared"), facts=facts, compile_s=compile_s)


def _gate(job: Job, variant: Variant, model: Model) -> CellRecord:
    from cplab.gating import gate_cell
    from cplab.golden import load_golden

    given = load_golden(Path(job.golden)) if job.golden else None
    cell = gate_cell(variant, model, job.threads, golden=given, frames=job.gate_frames)
    quick = []
    if cell.report.passed and job.quick_frames:
        _tune(cell)
        for i in range(job.quick_frames):
            quick.append(_timed_call(cell.predictor, cell.golden, i))
    facts = _facts(job, cell.predictor) | {
        "lossy_weights": cell.lossy_weights,
        "teacher_forced": cell.teacher_forced,
        "free_running": cell.free_running,
    }
    return _record(job, _outcome(cell), facts=facts, warmup_ns=quick)


def _tune(cell: CellGate) -> None:
    """Find the prefetch distance of a variant that has one, the first time on a machine."""
    from cplab.decoder import Decoder
    from cplab.tuning import tune_once

    if isinstance(cell.predictor, Decoder) and not cell.predictor.recompute:
        tune_once(cell.predictor, cell.golden.hidden, cell.golden.cb0_embed)


def _outcome(cell: CellGate) -> GateOutcome:
    report = cell.report
    return GateOutcome(
        status="pass" if report.passed else "fail",
        detail=report.detail(),
        codes_matched=report.codes_matched,
        codes_total=report.frames * report.passes,
        frames_matched=report.frames_matched,
        frames_total=report.frames,
        checks=[CheckResult(name=c.name, passed=c.passed, detail=c.detail) for c in report.checks],
    )


def _profile(job: Job, variant: Variant, model: Model) -> CellRecord:
    from bench import profiling
    from cplab.golden import load_golden

    given = load_golden(Path(job.golden)) if job.golden else None
    cell = profiling.gated(variant, model, job.threads, given, job.gate_frames)
    facts = _facts(job, cell.predictor) | {"lossy_weights": cell.lossy_weights}
    if not cell.report.passed:
        return _record(job, _outcome(cell), facts=facts)
    _tune(cell)
    samples, wrong = profiling.profile_frames(cell.predictor, cell.golden, job.frames)
    if wrong:
        return _record(job, GateOutcome(status="fail", detail=wrong), reason=wrong, facts=facts)
    return _record(
        job,
        _outcome(cell),
        profile=samples,
        bytes_per_frame=cell.predictor.bytes_per_frame,
        passes_per_frame=cell.predictor.passes_per_frame,
        facts=_facts(job, cell.predictor) | facts,
    )


def _timed(job: Job, variant: Variant, model: Model, started: float) -> CellRecord:
    import psutil

    from bench.host_load import load_between, steal_and_throttle
    from cplab.gating import LOSSY_FRAMES, law_of
    from cplab.golden import load_golden
    from cplab.golden_making import golden_for
    from cplab.kernels import compiling

    as_it_is = not job.lossy and law_of(variant) == "f32"
    judged, lossy = (model, 0) if as_it_is else model.repacked(variant.format)
    if as_it_is and job.golden:
        golden = load_golden(Path(job.golden))
    else:
        golden = golden_for(judged, LOSSY_FRAMES, law_of(variant))  # the gate's, found again
    predictor = variant.build(judged, job.threads)
    compile_s = compiling.compile_seconds()
    load_s = time.perf_counter() - started - compile_s
    # No input comes twice in a process, so that a variant which remembers results gains nothing by it.
    fresh = iter(range(job.first_frame, job.first_frame + len(golden)))
    warmups = min(job.warmup, max(0, len(golden) - 2))
    codes = TimedCodes(predictor, golden, variant.tier)
    first_ns = _timed_call(predictor, golden, next(fresh), codes)
    warmup = [_timed_call(predictor, golden, next(fresh), codes) for _ in range(warmups)]
    before = steal_and_throttle()
    samples, frame_ids = [], []
    roof = _Roof(predictor, job.threads)
    for i, index in enumerate(islice(fresh, job.frames)):
        samples.append(_timed_call(predictor, golden, index, codes))
        frame_ids.append(index % len(golden))
        if i < job.roof_reads:
            roof.read(job.round * job.roof_reads + i)
    pass_ns = [_traced_passes(predictor, golden, job.first_frame + i) for i in range(TRACED_CALLS)]
    wrong = codes.wrong()
    if wrong:
        return _record(job, GateOutcome(status="fail", detail=wrong), reason=wrong, facts=_facts(job, predictor))
    whose = "its own" if codes.own else "the golden's"
    status = GateOutcome(status="pass", detail=f"codes of all {len(samples)} timed frames are {whose}")
    return _record(
        job,
        status,
        samples_ns=samples,
        pass_ns=[p for p in pass_ns if p],
        frame_ids=frame_ids,
        warmup_ns=warmup,
        first_call_ns=first_ns,
        load_s=round(load_s, 4),
        compile_s=round(compile_s, 4),
        rss_mb=round(psutil.Process().memory_info().rss / 1e6, 1),
        bytes_per_frame=predictor.bytes_per_frame,
        passes_per_frame=predictor.passes_per_frame,
        roof=roof.samples,
        facts=_facts(job, predictor) | load_between(before, steal_and_throttle()) | {"lossy_weights": lossy},
    )


def _timed_call(predictor: CodePredictor, golden: Golden, index: int, kept: TimedCodes | None = None) -> int:
    """One call on one golden frame, as a user would make it: nanoseconds; its codes are kept to be judged."""
    i = index % len(golden)
    hidden, cb0 = golden.hidden[i : i + 1].copy(), golden.cb0_embed[i : i + 1].copy()
    started = time.perf_counter_ns()
    codes = predictor.predict(hidden, cb0)
    elapsed = time.perf_counter_ns() - started
    if kept is not None:
        kept.add(i, codes)
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


def _facts(job: Job, predictor: CodePredictor) -> dict[str, Any]:
    import numba

    from cplab.cpus import affinity
    from cplab.jit import target_cpu

    try:
        layer = numba.threading_layer()
    except ValueError:
        layer = None  # no parallel region has run in this process
    name, features = target_cpu()
    wanted = ("avx512f", "avx512vnni", "avx2", "fma", "neon")
    return {
        "cpus_asked": job.cpus,
        "cpus_got": sorted(affinity() or ()) or None,
        "threading_layer": layer,
        "one_region_a_frame": getattr(predictor, "runs_in_one_region", None) if job.threads > 1 else None,
        "target_cpu": name,
        "target_features": [f for f in wanted if f"+{f}" in features.split(",")],
        "prefetch_bytes": getattr(predictor, "ahead_bytes", None),
        "engine_note": getattr(predictor, "engine_note", ""),
        "loadavg_1m": round(os.getloadavg()[0], 2),
    }


def _record(job: Job, gate: GateOutcome, **fields: Any) -> CellRecord:
    from cplab.cpus import allowed_cpus

    return CellRecord(
        variant=job.variant,
        threads=job.threads,
        model=job.model,
        round=job.round,
        order=job.order,
        phase="gate" if job.phase == "prepare" else job.phase,
        gate=gate,
        oversubscribed=job.threads > (len(job.cpus) if job.cpus else allowed_cpus()),
        started_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **fields,
    )


if __name__ == "__main__":
    sys.exit(main())
