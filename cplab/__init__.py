"""What the Qwen3-TTS code predictor is and what right means. Knows nothing of judging times.

The two calls a user needs (the names are the Kazeia engine's, where this lab began)::

    from cplab import cp_load
    cp = cp_load("synthetic:0.6b", variant="kv_bf16", threads=2)
    codes = cp.predict(hidden, cb0_embed)      # [B, 1024] f32, [B, 1024] f32 -> [B, 15] int32

Greedy, or drawn: ``predict(..., noise=cplab.Sampling(seed=7, frame=0))``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from cplab.load import cp_load as cp_load
    from cplab.sampling import Sampling as Sampling
    from cplab.variant import CodePredictor as CodePredictor
    from cplab.variant import Trace as Trace

_LAZY = {
    "cp_load": "cplab.load",
    "Sampling": "cplab.sampling",
    "Trace": "cplab.variant",
    "CodePredictor": "cplab.variant",
}

__all__ = ["CodePredictor", "Sampling", "Trace", "__version__", "cp_load"]


def __getattr__(name: str) -> Any:
    """Import the public names on first use: workers set thread and CPU variables before numba is imported."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'cplab' has no attribute {name!r}")
