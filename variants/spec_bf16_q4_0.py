"""Exact speculation, BF16 weights, drafts by the same model in q4_0: the bits of `kv_bf16`, at best in fewer passes.

The idea: `spec_bf16` drafts with later heads, which must have learnt to. A quantised copy of the model needs to learn
nothing: it says what the model says as often as rounding lets it, at a fraction of the bytes. So it runs ahead, code by
code, with a KV cache of its own, and one BF16 pass verifies what it said. What was not accepted is written over in both
caches, and the accepted codes' tokens enter the drafter's with its next pass.

Cost at the published shape: 44 MB for each draft's layers and 1.2 MB for its head, beside 157 MB of layers for each
pass and 63 MB of heads a frame to verify with. A draft costs d = 0.28 of a pass by its bytes; k of them and their pass
take ``1 + k d`` and give ``1 + p + ... + p^k`` codes where each holds with probability p: one pays from p = d on
(`cplab.speculation.drafting_model`). Where none holds the drafter stays idle but for a try now and then, and what is
lost is bounded by an account (`cplab.speculation.draft_length`). Memory: 0.11 GB for the copy.
"""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import CodePredictor, variant


@variant("spec_bf16_q4_0", format="bf16", arithmetic="f32", tier="exact", drafter="q4_0")
def build(model: Model, threads: int) -> CodePredictor:
    """Drafts by the model in q4_0, verifying passes with weights in BF16."""
    return SpeculativeDecoder(model, threads, format="bf16", drafter="q4_0")
