"""KV cache, F16 weights: as small as BF16, exact only where F16 holds the checkpoint's values.

The idea: the format most engines convert to. F16 has three more significant bits than BF16 but a far smaller range:
weights below 2**-24 vanish and those above 65504 become infinite. The lab counts the weights that changed; where there
are any, this variant is another model, is judged against that model's oracle and is labelled `quality`.

Cost of a frame at the published shape: 2.42 GB of weights and 1.3 G multiply-adds.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_f16", format="f16", arithmetic="f32", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights in F16."""
    return Decoder(model, threads, format="f16")
