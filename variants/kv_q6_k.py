"""KV cache, Q6_K weights: six bits and a scale for each 16; the most that is kept below eight bits a weight.

The idea: as `kv_q5_0`, with the upper two bits of four steps in a plane of their own. A scale is a product, of a half
for 256 weights and an int8 for 16, which float32 holds exactly; for a lone token it is made once for 16 rows at a time.
A model whose rows are no multiples of 256 cannot be held so, and the variant is skipped on it.

Cost of a frame at the published shape: 0.99 GB of weights and 1.3 G multiply-adds, four to a lane.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_q6_k", format="q6_k", arithmetic="q6_k", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in superblocks of 6-bit integers, activations of int8."""
    return Decoder(model, threads, format="q6_k")
