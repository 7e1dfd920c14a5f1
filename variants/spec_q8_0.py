"""Exact speculation, weights and activations in q8_0: `spec_bf16` over blocks; codes and logits are `kv_q8_0`'s."""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import HEADS, CodePredictor, variant


@variant("spec_q8_0", format="q8_0", arithmetic="q8_0", tier="exact", drafter=HEADS)
def build(model: Model, threads: int) -> CodePredictor:
    """Draft heads and verifying passes, weights in q8_0."""
    return SpeculativeDecoder(model, threads, format="q8_0")
