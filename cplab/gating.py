"""Gating a cell: a registered variant with a thread count on a model, lossy packs and quantised arithmetic included.

A pack that changes weights makes another model, and another arithmetic another law. Such a variant is judged, still bit
by bit, against the oracle of the rounded weights in its arithmetic, and what it keeps of the original is told apart, as
fidelity to the original's float32 golden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cplab.formats import STORED
from cplab.gate import judge
from cplab.gate_report import Report
from cplab.golden import Golden
from cplab.golden_making import golden_for
from cplab.model import Model
from cplab.oracle_quantised import ARITHMETICS, stored_law
from cplab.validation import Validation, validate
from cplab.variant import CodePredictor, Variant

#: Frames of the golden that is made on the spot for rounded weights.
LOSSY_FRAMES = 6
#: Frames on which fidelity is measured at least, where there are so many: 150 codes at the published shape.
_FIDELITY_FRAMES = 10


@dataclass(frozen=True, slots=True)
class CellGate:
    """The gate's word on a cell.

    Attributes:
        report: check by check.
        predictor: what was judged, warm.
        golden: whose frames it was judged on.
        lossy_weights: weights that the format changed; 0 for a lossless pack.
        teacher_forced: share of codes equal to the original model's float32 golden, every earlier code pinned; None
            where the predictor takes no forced codes.
        free_running: the same with its own codes fed back; frames that end in an error count as unequal.
    """

    report: Report
    predictor: CodePredictor
    golden: Golden
    lossy_weights: int
    teacher_forced: float | None
    free_running: float


def gate_cell(
    variant: Variant,
    model: Model,
    threads: int,
    *,
    golden: Golden | None = None,
    frames: int | None = None,
    batches: Sequence[int] = (),
) -> CellGate:
    """Build a variant and judge it.

    Args:
        variant: the implementation.
        model: the weights as they are; they are rounded here where the variant rounds them.
        threads: team size.
        golden: the model's float32 golden, or the rounded model's in the variant's arithmetic; default: their own.
        frames: how many of the golden's frames; default all.
        batches: frames at once that are judged too; see `cplab.gate.judge`.

    Raises:
        GoldenError: the golden belongs to other weights or another arithmetic.
        UnpackableError: a weight that the variant's format cannot hold.
    """
    at_least = None if frames is None else max(frames, _FIDELITY_FRAMES)
    if variant.tier == "quality":  # measured by its distance to the original weights, however it rounds them
        original = golden if golden is not None else golden_for(model)
        predictor = variant.build(model, threads)
        report = judge(predictor, model, original, tier="quality", frames=frames, format=variant.format)
        kept = validate(predictor, original, frames=at_least, same_model=False)
        return CellGate(report, predictor, original, 0, *kept.shares)
    rounded, lossy = model.repacked(variant.format)
    law = law_of(variant, model)
    if not lossy and law == "f32":
        original = golden if golden is not None else golden_for(model)
        predictor = variant.build(model, threads)
        report = judge(predictor, model, original, tier=variant.tier, frames=frames, batches=batches)
        return CellGate(report, predictor, original, 0, report.teacher_forced, report.free_running)
    own, original = _goldens(law, model, rounded, golden)
    predictor = variant.build(rounded, threads)
    report = judge(predictor, rounded, own, tier=variant.tier, arithmetic=law, frames=frames, batches=batches)
    kept = validate(predictor, original, frames=at_least)
    return CellGate(report, predictor, own, lossy, *kept.shares)


def law_of(variant: Variant, model: Model) -> str:
    """The arithmetic whose oracle judges a variant; another engine's own rounding is held against float32."""
    if variant.arithmetic == STORED:
        return stored_law(model)
    return variant.arithmetic if variant.arithmetic in ARITHMETICS else "f32"


def _goldens(law: str, model: Model, rounded: Model, given: Golden | None) -> tuple[Golden, Golden]:
    """The golden that judges a law on rounded weights, and the original's in float32."""
    judges = given is not None and law != "f32" and given.arithmetic == law
    own = given if given is not None and judges else golden_for(rounded, LOSSY_FRAMES, law)
    original = given if given is not None and not judges else golden_for(model)
    original.require(model)
    return own, original


@dataclass(frozen=True, slots=True)
class ValidatedCell:
    """The gate's verdict on a cell, and its codes beside the golden of the original weights.

    Attributes:
        variant: which implementation.
        threads: on how many threads.
        golden: of the model's own weights in float32, or of those that the variant's format makes of them in the
            variant's arithmetic.
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
    # A golden in another arithmetic than float32 is of the rounded weights, or the gate had refused it.
    as_it_is = gated.lossy_weights == 0 or golden.arithmetic != "f32"
    same_model = as_it_is and variant.tier != "quality" and law_of(variant, model) == golden.arithmetic
    found = validate(gated.predictor, golden, same_model=same_model)
    return ValidatedCell(variant, threads, golden, gated.report, gated.lossy_weights, found)
