"""KV cache, BF16 weights: the checkpoint's own type, so nothing is lost and half of the bytes are gone.

The idea: at the memory wall time is bytes. A BF16 number is the upper half of a float32, so decoding is one shift in
registers, cheaper than waiting for the other half from memory. The published checkpoints are BF16: packing is
lossless by construction, and the logits are the bits of `kv_f32`.

Cost of a frame at the published shape: 2.42 GB of weights and 1.3 G multiply-adds.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_bf16", format="bf16", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in BF16."""
    return Decoder(model, threads, format="bf16")
