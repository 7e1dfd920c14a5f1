"""Phase ``cell`` of a worker: one variant, gated and then held against what the float32 law says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.quality.audio import audio_distance
from bench.quality.free_running import free_running
from bench.quality.job import QualityJob
from bench.quality.naive_distance import has_measure, naive_distance
from bench.quality.rollout import Said, beside, rollout
from bench.quality.shared_file import load_shared
from bench.quality.talkers import rollout_talker
from bench.quality.teacher_forced import Answers, answers, figures
from bench.records.quality import NaiveDistance, QualityCell, TeacherForced
from bench.worker_record import outcome_of
from cplab.gating import CellGate, gate_cell
from cplab.golden import Golden, load_golden
from cplab.golden_making import golden_for
from cplab.model import Model
from cplab.naive import Naive
from cplab.sources import load_model
from cplab.variant import Variant, get_variant, load_variant_file, takes_forced


@dataclass(frozen=True, slots=True)
class _Judged:
    variant: Variant
    model: Model
    golden: Golden
    gate: CellGate

    @property
    def exact(self) -> bool:
        """Whether it says what the model says, bit for bit."""
        own = self.variant
        return own.tier == "exact" and own.arithmetic == "f32" and not self.gate.lossy_weights


def run_cell(job: QualityJob) -> QualityCell:
    """Do it.

    Raises:
        CplabError: the variant is unknown, not installed, or cannot hold the model.
    """
    started = time.perf_counter()
    for path in job.variant_files:
        load_variant_file(Path(path))
    variant, model = get_variant(job.variant), load_model(job.model)
    golden = load_golden(Path(job.golden)) if job.golden else golden_for(model)
    gate = gate_cell(variant, model, job.threads, golden=golden if job.golden else None, frames=job.gate_frames)
    found = _measured(job, _Judged(variant, model, golden, gate))
    reasons = [gate.report.detail()] if not gate.report.passed else []
    reasons += _wrong(found)
    pinned = found.get("teacher_forced")
    if found["exact"] and pinned is not None and not _has_the_bits(pinned):
        found["exact"] = False
        reasons.append(f"right on the gate's {job.gate_frames} frames, and other logits than the law's on the golden's")
    if not takes_forced(gate.predictor):
        found["reason"] = "it takes no forced codes: free-running figures only"
    if reasons:
        found["reason"] = "; ".join(reasons)
    return QualityCell(
        variant=variant.name,
        format=variant.format,
        arithmetic=variant.arithmetic,
        tier=variant.tier,
        threads=job.threads,
        status="fail" if reasons else "pass",
        gate=outcome_of(gate),
        lossy_weights=gate.lossy_weights,
        bytes_per_frame=gate.predictor.bytes_per_frame or None,
        engine_note=getattr(gate.predictor, "engine_note", ""),
        seconds=round(time.perf_counter() - started, 1),
        **found,
    )


def _measured(job: QualityJob, judged: _Judged) -> dict[str, Any]:
    shared, predictor = load_shared(Path(job.shared)), judged.gate.predictor
    count = len(shared.golden)
    golden = judged.golden
    found: dict[str, Any] = {
        "exact": judged.exact and judged.gate.report.passed,
        "free_running": free_running(predictor, golden.hidden[:count], golden.cb0_embed[:count], golden.codes[:count]),
    }
    along = None
    if takes_forced(predictor):
        said = answers(predictor, shared.golden)
        found["teacher_forced"] = figures(said, shared.golden)
        found["naive"] = _naive(judged, said, job)
        if shared.recorded is not None:
            pinned = answers(predictor, shared.recorded)
            found["recorded"] = figures(pinned, shared.recorded)
            if job.decoder:
                found["audio"] = audio_distance(job, judged.model.spec, pinned, shared.recorded)
        if shared.loop is not None:
            along = answers(predictor, shared.loop.along())
    if shared.loop is not None:
        found["rollout"] = beside(_own_loop(job, judged, len(shared.loop.codes)), shared.loop, along)
    return found


def _own_loop(job: QualityJob, judged: _Judged, frames: int) -> Said:
    with rollout_talker(job.talker, judged.model.spec, job.threads, frames) as (talker, rules, _):
        return rollout(judged.gate.predictor, judged.model, talker, rules, frames)


def _naive(judged: _Judged, said: Answers, job: QualityJob) -> NaiveDistance | None:
    """The distance beside the naive implementation's, where it rounds at all and such an implementation is known."""
    kind = judged.variant.format
    if judged.exact or judged.variant.tier == "codes" or said.logits is None or not has_measure(kind):
        return None
    naive = Naive(judged.model, kind, getattr(judged.gate.predictor, "head_format", ""))
    truth = load_shared(Path(job.shared)).golden
    return naive_distance(said.logits, truth, naive, kind) if np.isfinite(said.logits).all() else None


def _wrong(found: dict[str, Any]) -> list[str]:
    """What no variant may do: be further away than is allowed, or have logits that are not finite."""
    naive, rolled = found.get("naive"), found.get("rollout")
    wrong = [naive.detail] if naive is not None and not naive.passed else []
    for name in ("teacher_forced", "recorded"):
        pinned = found.get(name)
        if pinned is not None and pinned.non_finite:
            wrong.append(f"{pinned.non_finite} of {pinned.rows} {name.replace('_', '-')} rows are not finite")
    if rolled is not None and rolled.own.non_finite:
        wrong.append(f"rollout: {rolled.own.stopped or f'{rolled.own.non_finite} rows are not finite'}")
    return wrong


def _has_the_bits(found: TeacherForced) -> bool:
    """Whether every logit is the law's: no distance from it at all."""
    return found.agreement.value == 1 and found.rmse is not None and found.rmse.value == 0
