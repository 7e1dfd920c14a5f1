"""Recompute, F16 weights: what the tablet ran when a frame took 267 ms.

The idea: half the bytes of float32 for the same weights. Each 16 of them are widened in registers (exact) just before
the multiply-add, so the arithmetic is float32 as everywhere and the bits are those of `recompute_f32`, wherever F16
holds the weights exactly. Activations stay float32: in F16 the real model's feed-forward overflows.

Cost of a frame at the published shape: 2.42 GB of weights and 10.7 G multiply-adds.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("recompute_f16", format="f16", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """Layers over all positions in every pass, weights in F16."""
    return Decoder(model, threads, format="f16", recompute=True)
