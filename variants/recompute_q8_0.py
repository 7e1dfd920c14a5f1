"""Recompute, Q8_0 weights: the quantised kernels where arithmetic is the limit, not memory.

The idea: an engine without a KV cache runs up to 16 tokens a pass, so every weight that was read serves them all, and
the multiply-add units are what is waited for. Four integer products in one instruction, a conversion, a scale and a
fma stand against four fma of float32: quantising buys less here than it does at the memory wall.

Cost of a frame at the published shape: 1.29 GB of weights and 10.9 G multiply-adds, four to a lane.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("recompute_q8_0", format="q8_0", arithmetic="q8_0", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """All positions in every pass, weights and activations in blocks of int8."""
    return Decoder(model, threads, format="q8_0", recompute=True)
