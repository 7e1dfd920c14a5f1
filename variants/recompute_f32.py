"""Recompute, float32: no KV cache; each pass runs every position from scratch, T = 2..16 tokens at once.

The idea: where a program has no cache, pass g must run positions 0..g+1 again to know what the last one sees. It is the
algorithm of the Kazeia baseline. Done honestly fast, it is not 135 vector passes: the T tokens of a pass ride along on
each weight that is read, so weights are streamed 15 times a frame, as with a cache, and the extra work is arithmetic.

Cost of a frame at the published shape: 4.85 GB of weights (15 x 80.8 M x 4 bytes) and 10.7 G multiply-adds (135
token-passes through the layers), against 1.3 G with a cache. On most machines the arithmetic is the wall here.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("recompute_f32", format="f32", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """Layers over all positions in every pass, weights in float32."""
    return Decoder(model, threads, format="f32", recompute=True)
