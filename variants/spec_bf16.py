"""Exact speculation, BF16 weights: later codes are guessed by their own heads, one pass verifies several.

The idea: a frame's fifteen passes each wait for all layers to come from memory, for one token. A pass over four tokens
takes hardly longer, if there were four; but a code is known only when the one before it is. So guess: head g + t on
the current hidden state drafts code g + t at the price of a head, a 37th of a pass. The next pass takes in the known
code and the drafts, each at its own position, and gives a code for itself and one for each draft that is what the
exact argmax (or the draw, where codes are sampled) says: the others are thrown away with what they left in the cache.
A token's bits do not depend on what stands beside it, so the result is `kv_bf16`'s bit for bit, however bad drafts are.

Cost of a frame at the published shape: 157 MB of layers for each pass, 63 MB of heads to verify with and 4 MB for each
draft. How many passes that is depends on the model: with nothing accepted it is `kv_bf16` and what an account allows to
be lost, as draft lengths follow what drafts were worth (`cplab.speculation.draft_length`). Seeded weights have learnt
nothing that a draft could use, `synthetic:0.6b-predictable` apart, which is made for it; what a trained checkpoint
accepts is for its owner to measure.
"""

from __future__ import annotations

from cplab.model import Model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.variant import HEADS, CodePredictor, variant


@variant("spec_bf16", format="bf16", arithmetic="f32", tier="exact", drafter=HEADS)
def build(model: Model, threads: int) -> CodePredictor:
    """Draft heads and verifying passes, weights in BF16."""
    return SpeculativeDecoder(model, threads, format="bf16")
