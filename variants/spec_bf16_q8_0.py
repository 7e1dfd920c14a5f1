"""Exact speculation, BF16 weights, drafts by the same model in q8_0: `spec_bf16_q4_0` with dearer and better drafts.

A draft costs 0.53 of a BF16 pass by its bytes, and holds nearly always: with nine of ten right, two or three drafts
give 1.3 times the codes a time. However good drafts are, it is no more than 1.9 times: that is a q8_0 pass a code.
"""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import CodePredictor, variant


@variant("spec_bf16_q8_0", format="bf16", arithmetic="f32", tier="exact", drafter="q8_0")
def build(model: Model, threads: int) -> CodePredictor:
    """Drafts by the model in q8_0, verifying passes with weights in BF16."""
    return SpeculativeDecoder(model, threads, format="bf16", drafter="q8_0")
