"""Exact speculation, packed BF16 weights: `spec_bf16` over weights of 12 bits; codes and logits are `kv_bf12`'s."""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import HEADS, CodePredictor, variant


@variant("spec_bf12", format="bf12", arithmetic="f32", tier="exact", drafter=HEADS)
def build(model: Model, threads: int) -> CodePredictor:
    """Draft heads and verifying passes, weights in packed BF16."""
    return SpeculativeDecoder(model, threads, format="bf12")
