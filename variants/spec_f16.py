"""Exact speculation, F16 weights: `spec_bf16` over F16 weights; codes and logits are `kv_f16`'s."""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import HEADS, CodePredictor, variant


@variant("spec_f16", format="f16", arithmetic="f32", tier="exact", drafter=HEADS)
def build(model: Model, threads: int) -> CodePredictor:
    """Draft heads and verifying passes, weights in F16."""
    return SpeculativeDecoder(model, threads, format="f16")
