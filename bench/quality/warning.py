"""What figures beside the float32 law are not about, said before them on every terminal and page."""

from __future__ import annotations

from cplab.model import Model

SEEDED = (
    "This model is made from a seed: these figures are about arithmetic, not about speech. What they say of formats "
    "holds for weights like these, and a trained model's may differ."
)


def warning_of(model: Model) -> str:
    """What a reader must know first of figures on a model, or ""."""
    told = [SEEDED] if model.synthetic else []
    if model.quantised:
        told.append(
            f"This file holds rounded weights already ({', '.join(model.quantised)}): float32 means those, decoded, so "
            "that agreement, even of 100 %, says nothing of what rounding them has lost. The original (a checkpoint or "
            "a file in f32, bf16 or f16) as --model shows that."
        )
    return " ".join(told)
