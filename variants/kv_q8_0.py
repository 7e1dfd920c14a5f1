"""KV cache, Q8_0 weights: eight bits and a scale for each 32, half of BF16's bytes, and another model than the stored.

The idea: integers multiply four at a time in one instruction, and a block of 32 needs one scale. Activations are
quantised too, once for each vector, so that products are of integers and exact; a lane then takes one fma. This is
exact for what it computes (the gate holds it to the bits of its own oracle), and still not what the checkpoint says:
its fidelity stands beside its time.

Cost of a frame at the published shape: 1.29 GB of weights and 1.3 G multiply-adds, four to a lane.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_q8_0", format="q8_0", arithmetic="q8_0", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights and activations in blocks of int8."""
    return Decoder(model, threads, format="q8_0")
