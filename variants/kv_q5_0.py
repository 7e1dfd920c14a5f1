"""KV cache, Q5_0 weights: a bit more than Q4_0, two thirds of Q8_0's bytes.

The idea: as `kv_q4_0`, with the fifth bits in a plane of their own, 32 bytes for 256 weights of a row. A register of
them serves four steps, each of which shifts its own bit into place: a shift, a mask and an or more than a nibble takes.

Cost of a frame at the published shape: 0.83 GB of weights and 1.3 G multiply-adds, four to a lane.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_q5_0", format="q5_0", arithmetic="q5_0", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in blocks of 5-bit integers, activations of int8."""
    return Decoder(model, threads, format="q5_0")
