"""KV cache, BF16 weights packed to 12 bits without loss: a quarter fewer bytes, the same bits."""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_bf12", format="bf12", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in packed BF16."""
    return Decoder(model, threads, format="bf12")
