"""llama.cpp with its KV cache: what a program gets that hands the layers to the best-known engine.

The idea: none of ours; it is the rival. The five layers are a ``qwen3`` file that llama.cpp loads, embeddings go in,
hidden states come out, and the lab's kernels do the heads. Flash attention, repacked weights and the type of the K/V
cache are tried once, in a process that may die of them, and the fastest that works is taken.

What to expect: F32 rounds in its own order, tier `codes`. F16 and BF16 also turn each activation into that type, Q8_0
and Q4_0 into 8 bits a block of 32: other codes than the model's, tier `quality`. On the `-spikes` model F16 must fail:
an activation beyond 65504 is infinite there (with the extra buffer types of some CPUs it stays wider, which is told in
the report and does not count: the same file overflows elsewhere).

Cost of a frame at the published shape: 15 passes over the layers, 78.66 M weights at 32, 16, 16, 8.5 or 4.5 bits, and
over a head of 2.10 M in the same type; 1.3 G multiply-adds.
"""

from __future__ import annotations

from cplab.llama.settings import TIERS
from cplab.model import Model
from cplab.variant import CodePredictor, Tier, variant


def _register(kind: str, tier: Tier) -> None:
    name = f"llama_kv_{kind}"

    @variant(name, format=kind, arithmetic=name, tier=tier, extra="llama")
    def build(model: Model, threads: int) -> CodePredictor:
        """Layers by llama.cpp with its KV cache, heads by the lab."""
        from cplab.llama.predictor import LlamaPredictor

        return LlamaPredictor(model, threads, kind=kind, recompute=False)


for _kind, _tier in TIERS.items():
    _register(_kind, _tier)
