"""The worker process: ``python -m bench.worker RESULT_FILE`` with a `bench.job.Job` on standard input.

One cell, one phase, one process: nothing that an implementation does can take the sweep down or warm up the next one.
The process pins itself before numba is imported, so that the thread pool is born on the right CPUs. The result is a
`bench.records.CellRecord` as JSON, written at once at the end: a worker that dies leaves none.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.job import Job
from bench.records import CellRecord, GateOutcome
from bench.timing import soak, timed, timed_call
from bench.worker_record import facts_of, outcome_of, record_of
from cplab.orphans import die_with_parent

if TYPE_CHECKING:
    from cplab.gating import CellGate
    from cplab.model import Model
    from cplab.variant import Variant


def main() -> int:
    """Read the job, do it, write the record; errors that the lab knows become a record too."""
    die_with_parent()
    job = Job.model_validate_json(sys.stdin.read())
    if job.cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cpus)
    from cplab.errors import CplabError, RowsNotInBlocksError, VariantUnavailableError

    try:
        record = _run(job)
    except (VariantUnavailableError, RowsNotInBlocksError) as error:
        record = record_of(job, GateOutcome(status="skip", detail=str(error)), reason=str(error))
    except CplabError as error:
        record = record_of(job, GateOutcome(status="fail", detail=str(error)), reason=str(error))
    except OSError as error:
        told = f"{error.filename or 'a file'}: {error.strerror or error}"
        record = record_of(job, GateOutcome(status="fail", detail=told), reason=told)
    result = Path(sys.argv[1])
    temporary = result.with_suffix(".tmp")
    temporary.write_text(record.model_dump_json(by_alias=True), encoding="utf-8")
    temporary.replace(result)
    return 0


def _run(job: Job) -> CellRecord:
    from cplab.sources import load_model
    from cplab.variant import get_variant, load_variant_file

    if job.phase in ("talker_prepare", "talker_trial", "talker"):
        from bench.talker_timing import run_talker

        return run_talker(job)
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
    return (soak if job.phase == "soak" else timed)(job, variant, model, started)


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
    return record_of(job, GateOutcome(status="skip", detail="prepared"), facts=facts, compile_s=compile_s)


def _gate(job: Job, variant: Variant, model: Model) -> CellRecord:
    from cplab.gating import gate_cell
    from cplab.golden import load_golden

    given = load_golden(Path(job.golden)) if job.golden else None
    cell = gate_cell(variant, model, job.threads, golden=given, frames=job.gate_frames, batches=job.batches)
    quick = []
    if cell.report.passed and job.quick_frames:
        _tune(cell)
        for i in range(job.quick_frames):
            quick.append(timed_call(cell.predictor, cell.golden, i))
    facts = facts_of(job, cell.predictor) | {
        "lossy_weights": cell.lossy_weights,
        "teacher_forced": cell.teacher_forced,
        "free_running": cell.free_running,
    }
    return record_of(job, outcome_of(cell), facts=facts, warmup_ns=quick)


def _tune(cell: CellGate) -> None:
    """Find the prefetch distance of a variant that has one, the first time on a machine."""
    from cplab.decoder import Decoder
    from cplab.tuning import tune_once

    if isinstance(cell.predictor, Decoder) and not cell.predictor.recompute:
        tune_once(cell.predictor, cell.golden.hidden, cell.golden.cb0_embed)


def _profile(job: Job, variant: Variant, model: Model) -> CellRecord:
    from bench import profiling
    from cplab.golden import load_golden

    given = load_golden(Path(job.golden)) if job.golden else None
    cell = profiling.gated(variant, model, job.threads, given, job.gate_frames)
    facts = facts_of(job, cell.predictor) | {"lossy_weights": cell.lossy_weights}
    if not cell.report.passed:
        return record_of(job, outcome_of(cell), facts=facts)
    _tune(cell)
    samples, wrong = profiling.profile_frames(cell.predictor, cell.golden, job.frames)
    if wrong:
        return record_of(job, GateOutcome(status="fail", detail=wrong), reason=wrong, facts=facts)
    return record_of(
        job,
        outcome_of(cell),
        profile=samples,
        bytes_per_frame=cell.predictor.bytes_per_frame,
        passes_per_frame=cell.predictor.passes_per_frame,
        facts=facts_of(job, cell.predictor) | facts,
    )


if __name__ == "__main__":
    sys.exit(main())
