"""Gating a cell: a registered variant with a thread count on a model, lossy packs included.

A pack that changes weights makes another model. It is judged, still bit by bit, against the oracle of the rounded
weights, and what it keeps of the original is told apart, as fidelity to the original's golden.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cplab.gate import judge
from cplab.gate_report import Report
from cplab.golden import Golden
from cplab.golden_making import golden_for
from cplab.model import Model
from cplab.variant import CodePredictor, Variant

#: Frames of the golden that is made on the spot for rounded weights.
_LOSSY_FRAMES = 6


@dataclass(frozen=True, slots=True)
class CellGate:
    """The gate's word on a cell.

    Attributes:
        report: check by check.
        predictor: what was judged, warm.
        golden: whose frames it was judged on.
        lossy_weights: weights that the format changed; 0 for a lossless pack.
        teacher_forced: share of codes equal to the original model's golden, every earlier code pinned.
        free_running: the same with its own codes fed back.
    """

    report: Report
    predictor: CodePredictor
    golden: Golden
    lossy_weights: int
    teacher_forced: float
    free_running: float


def gate_cell(
    variant: Variant, model: Model, threads: int, *, golden: Golden | None = None, frames: int | None = None
) -> CellGate:
    """Build a variant and judge it on ``frames`` frames (default all) of the model's golden."""
    original = golden if golden is not None else golden_for(model)
    if variant.tier == "quality":  # measured by its distance to the original weights, however it rounds them
        predictor = variant.build(model, threads)
        report = judge(predictor, model, original, tier="quality", frames=frames, format=variant.format)
        return CellGate(report, predictor, original, 0, report.teacher_forced, report.free_running)
    rounded, lossy = model.repacked(variant.format)
    if not lossy:
        predictor = variant.build(model, threads)
        report = judge(predictor, model, original, tier=variant.tier, frames=frames)
        return CellGate(report, predictor, original, 0, report.teacher_forced, report.free_running)
    own = golden_for(rounded, _LOSSY_FRAMES)
    predictor = variant.build(rounded, threads)
    report = judge(predictor, rounded, own, tier=variant.tier, frames=frames)
    forced, free = fidelity(predictor, original, frames)
    return CellGate(report, predictor, own, lossy, forced, free)


def fidelity(predictor: CodePredictor, golden: Golden, frames: int | None = None) -> tuple[float, float]:
    """Share of codes equal to a golden's, teacher-forced and free-running."""
    part = slice(0, frames)
    hidden, cb0, codes = golden.hidden[part], golden.cb0_embed[part], golden.codes[part]
    forced = predictor.predict(hidden, cb0, forced=codes)
    free = predictor.predict(hidden, cb0)
    return float(np.mean(forced == codes)), float(np.mean(free == codes))
