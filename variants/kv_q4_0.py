"""KV cache, Q4_0 weights: four bits and a scale for each 32; the fewest bytes of the plain formats.

The idea: as `kv_q8_0`, with two weights in a byte. Nibbles stay as they are in registers, 0 to 15; what they have too
much (8) is taken off in one subtraction for each four products, which depends on the activations alone and is made
once a vector. So unpacking is a mask and a shift.

Cost of a frame at the published shape: 0.68 GB of weights and 1.3 G multiply-adds, four to a lane.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_q4_0", format="q4_0", arithmetic="q4_0", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in blocks of 4-bit integers, activations of int8."""
    return Decoder(model, threads, format="q4_0")
