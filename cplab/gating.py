"""Gating a cell: a registered variant with a thread count on a model, lossy packs included.

A pack that changes weights makes another model. It is judged, still bit by bit, against the oracle of the rounded
weights, and what it keeps of the original is told apart, as fidelity to the original's golden.
"""

from __future__ import annotations

from dataclasses import dataclass

from cplab.gate import judge
from cplab.gate_report import Report
from cplab.golden import Golden
from cplab.golden_making import golden_for
from cplab.model import Model
from cplab.validation import Validation, validate
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
    """Build a variant and judge it on ``frames`` frames (default all) of the model's golden.

    Raises:
        GoldenError: ``golden`` belongs to other weights than the model's.
    """
    original = golden if golden is not None else golden_for(model)
    original.require(model)
    rounded, lossy = model.repacked(variant.format)
    if not lossy:
        predictor = variant.build(model, threads)
        report = judge(predictor, model, original, tier=variant.tier, frames=frames)
        return CellGate(report, predictor, original, 0, report.teacher_forced, report.free_running)
    own = golden_for(rounded, _LOSSY_FRAMES)
    predictor = variant.build(rounded, threads)
    report = judge(predictor, rounded, own, tier=variant.tier, frames=frames)
    kept = validate(predictor, original, frames=frames)
    return CellGate(report, predictor, own, lossy, kept.teacher_forced.share, kept.free_running.share)


@dataclass(frozen=True, slots=True)
class ValidatedCell:
    """The gate's verdict on a cell, and its codes beside the golden of the original weights.

    Attributes:
        variant: which implementation.
        threads: on how many threads.
        golden: of the model's own weights, whatever the variant's format makes of them.
        report: the gate's, against the weights as the format holds them.
        lossy_weights: weights that the format changed; 0 for a lossless pack.
        found: the variant's codes beside ``golden``.
    """

    variant: Variant
    threads: int
    golden: Golden
    report: Report
    lossy_weights: int
    found: Validation

    @property
    def passed(self) -> bool:
        """Whether the gate passed and every code is the golden's."""
        return self.report.passed and self.found.all_match


def validate_cell(variant: Variant, model: Model, threads: int, golden: Golden) -> ValidatedCell:
    """Gate a cell, then compare its codes with every frame of ``golden``, made from the model's weights.

    Raises:
        GoldenError: ``golden`` belongs to other weights.
    """
    gated = gate_cell(variant, model, threads, golden=golden)
    found = validate(gated.predictor, golden)
    return ValidatedCell(variant, threads, golden, gated.report, gated.lossy_weights, found)
