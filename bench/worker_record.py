"""The record that a worker leaves: what every phase writes into it, and what it read back of its own process."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bench.job import Job
from bench.records import CellRecord, CheckResult, GateOutcome

if TYPE_CHECKING:
    from cplab.gating import CellGate
    from cplab.variant import CodePredictor


def facts_of(job: Job, predictor: CodePredictor) -> dict[str, Any]:
    """Affinity, threading layer, instruction set and load as this process has them, as plain data."""
    import llvmlite.binding as llvm
    import numba

    from bench.frame_work import macs_of
    from bench.instruction_set import CODE_FEATURES, instruction_set
    from bench.software_facts import engine_builds, environment
    from cplab.cpus import affinity
    from cplab.jit import target_cpu
    from cplab.speculation.acceptance import Speculates

    try:
        layer = numba.threading_layer()
    except ValueError:
        layer = None  # no parallel region has run in this process
    name, features = target_cpu()
    return {
        "cpus_asked": job.cpus,
        "cpus_got": sorted(affinity() or ()) or None,
        "threading_layer": layer,
        "one_region_a_frame": getattr(predictor, "runs_in_one_region", None) if job.threads > 1 else None,
        "target_cpu": name,
        "target_features": [f for f in CODE_FEATURES if f"+{f}" in features.split(",")],
        "instruction_set": instruction_set(),
        "macs_per_frame": macs_of(predictor),
        "llvm": ".".join(str(part) for part in llvm.llvm_version_info),
        "engine_builds": engine_builds(),
        "environment": environment(os.environ),
        "prefetch_bytes": getattr(predictor, "ahead_bytes", None),
        "engine_note": getattr(predictor, "engine_note", ""),
        "speculation": predictor.acceptance.facts() if isinstance(predictor, Speculates) else None,
        "loadavg_1m": round(os.getloadavg()[0], 2),
    }


def outcome_of(cell: CellGate) -> GateOutcome:
    """What the gate found, as it is recorded."""
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


def record_of(job: Job, gate: GateOutcome, **fields: Any) -> CellRecord:
    """The record of this worker's cell and phase."""
    from cplab.cpus import allowed_cpus

    return CellRecord(
        variant=job.variant,
        threads=job.threads,
        model=job.model,
        round=job.round,
        order=job.order,
        phase=job.record_phase,
        gate=gate,
        oversubscribed=job.threads > (len(job.cpus) if job.cpus else allowed_cpus()),
        started_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        **fields,
    )
