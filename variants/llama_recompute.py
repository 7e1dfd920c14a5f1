"""llama.cpp without a KV cache: every pass runs all positions again, as the tablet's engine did.

The idea: none of ours; it is the rival of `recompute_f16` as `llama_kv` is of `kv_f16`. A pass is one batch of 2 to 16
tokens into an empty sequence. Everything else is as in `llama_kv`: settings tried once, the lab's heads, the tiers.

What to expect: weights are read as often as with a cache, so that arithmetic decides; an engine whose kernels for
several tokens at once are much better than for one can win here, and only here.

Cost of a frame at the published shape: the bytes of `llama_kv` and 10.7 G multiply-adds.
"""

from __future__ import annotations

from cplab.llama.settings import TIERS
from cplab.model import Model
from cplab.variant import CodePredictor, Tier, variant


def _register(kind: str, tier: Tier) -> None:
    name = f"llama_recompute_{kind}"

    @variant(name, format=kind, arithmetic=name, tier=tier, extra="llama")
    def build(model: Model, threads: int) -> CodePredictor:
        """Layers by llama.cpp over all positions in every pass, heads by the lab."""
        from cplab.llama.predictor import LlamaPredictor

        return LlamaPredictor(model, threads, kind=kind, recompute=True)


for _kind, _tier in TIERS.items():
    _register(_kind, _tier)
