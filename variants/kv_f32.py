"""KV cache, float32: each position runs through the layers once; its keys and values are kept.

The idea: what position p sees of positions before it never changes, so their keys and values are computed once and
kept: 16 positions x 5 layers x 2 x 1024 floats, 0.6 MB a frame. Position 0 (the talker's hidden state) and 1 (CB0)
have no code between them and go in one two-token pass; after that a pass is one token. With a fixed order of every
sum this changes no bit: logits equal those of `recompute_f32`.

Cost of a frame at the published shape: 4.85 GB of weights and 1.3 G multiply-adds: from here on memory is the wall.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_f32", format="f32", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in float32."""
    return Decoder(model, threads, format="f32")
