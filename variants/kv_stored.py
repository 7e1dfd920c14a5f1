"""KV cache, each matrix in the format that the model has it in: a recipe of formats, run as it stands.

The idea: matrices are not alike. Some lose little at four bits and are most of the bytes, some lose much and are few;
a model that was exported with a recipe (`cplab export --recipe`) holds each as it can bear. Nothing is packed anew
here: what goes into a matrix is quantised where the matrix is, and float32 where it is not, so the law is the one of
each matrix's own format (`cplab.oracle_quantised`, ``stored``). Of a model that is held in one format alone this is
`kv_bf16`, `kv_q8_0` and so on, bit for bit.

Cost of a frame: what the model's matrices take, and a quantised copy of each activation that a quantised matrix reads.
"""

from __future__ import annotations

from cplab.decoder import Decoder
from cplab.model import Model
from cplab.variant import CodePredictor, variant


@variant("kv_stored", format="stored", arithmetic="stored", tier="exact")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers, weights as the model stores them."""
    return Decoder(model, threads, format="stored")
