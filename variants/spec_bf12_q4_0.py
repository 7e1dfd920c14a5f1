"""Exact speculation, packed BF16 weights, drafts by the same model in q4_0: `spec_bf16_q4_0` over weights of 12 bits.

The pass that a draft may save is a quarter shorter than in BF16, so a draft costs 0.38 of it by its bytes.
"""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import CodePredictor, variant


@variant("spec_bf12_q4_0", format="bf12", arithmetic="f32", tier="exact", drafter="q4_0")
def build(model: Model, threads: int) -> CodePredictor:
    """Drafts by the model in q4_0, verifying passes with weights in packed BF16."""
    return SpeculativeDecoder(model, threads, format="bf12", drafter="q4_0")
