"""PyTorch without `generate`: the same weights, a KV cache, and a plain loop of 2 + 14 tokens.

The idea: what somebody writes who found `generate` slow. One prefill of two tokens, then fourteen single ones, in
torch's functional operators (`linear`, `rms_norm`, `scaled_dot_product_attention`), a cache that is allocated once, no
masks, no processors. The matrix products are those of `torch_f32`; the time between the two is what `generate` costs.

What to expect: torch sums in the order of its BLAS, so tier `codes`.

Cost of a frame at the published shape: 4.85 GB of weights, held once (0.57 GB), 1.3 G multiply-adds, about 4,400
operators called from Python.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import require_process
from cplab.errors import NonFiniteLogitsError
from cplab.model import Model
from cplab.rope import rope_table
from cplab.sampling import Noise
from cplab.torch_frames import DecodedTensors, torch_module, torch_note, torch_streams, torch_threads
from cplab.variant import CodePredictor, Trace, WeightStream, checked_inputs, variant

Array = NDArray[np.float32]


class ManualPredictor:
    """See `cplab.variant.CodePredictor`."""

    def __init__(self, model: Model, threads: int) -> None:
        self.torch = torch = torch_module()
        self._pid = os.getpid()
        self.model, self.spec, self.threads = model, model.spec, threads
        with torch_threads(threads):
            # torch.tensor copies into memory that torch aligns.
            self.weights = {name: torch.tensor(values) for name, values in DecodedTensors(model).items()}
            self.cos, self.sin = (torch.tensor(table)[:, None, :] for table in rope_table(self.spec))
            shape = (self.spec.layers, 1, self.spec.kv_heads, self.spec.positions, self.spec.head_dim)
            self.K, self.V = torch.empty(shape), torch.empty(shape)
        self.engine_note = torch_note()
        self.passes_per_frame = self.spec.passes
        self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())

    def predict(
        self,
        hidden: Array,
        cb0_embed: Array,
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`; frames go one after another.

        Raises:
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced, noise)
        require_process(self._pid)
        spec = self.spec
        codes = np.empty((len(hidden), spec.passes), np.int32)
        logits = np.empty((len(hidden), spec.passes, spec.vocab), np.float32)
        pass_ns = np.zeros(spec.passes, np.int64)
        with torch_threads(self.threads):
            for b in range(len(hidden)):
                X = self.torch.tensor(np.stack([hidden[b], cb0_embed[b]]))
                first = 0
                for g in range(spec.passes):
                    started = time.perf_counter_ns()
                    logits[b, g] = self._pass(X, first, g).numpy()
                    if not np.isfinite(logits[b, g]).all():
                        raise NonFiniteLogitsError(b, g, "torch")
                    codes[b, g] = np.argmax(logits[b, g])
                    first += len(X)
                    fed = int(codes[b, g] if forced is None else forced[b, g])
                    X = self.weights[f"model.codec_embedding.{g}.weight"][fed : fed + 1]
                    pass_ns[g] += time.perf_counter_ns() - started
        if trace is not None:
            trace.logits, trace.pass_ns = logits, pass_ns
        return codes

    def streams(self) -> list[WeightStream]:
        """Every matrix in the order of a frame."""
        return torch_streams(self.weights, self.spec)

    def _norm(self, x: Any, name: str) -> Any:
        w = self.weights[name + ".weight"]
        return self.torch.nn.functional.rms_norm(x, w.shape, w, self.spec.rms_eps)

    def _times(self, x: Any, name: str) -> Any:
        return self.torch.nn.functional.linear(x, self.weights[name + ".weight"], self.weights.get(name + ".bias"))

    def _rotated(self, y: Any, norm: str, first: int) -> Any:
        """Heads ``[T, heads * d]``, normed and turned to their positions: ``[1, heads, T, d]``."""
        a, b = self._norm(y.view(len(y), -1, self.spec.head_dim), norm).chunk(2, -1)
        cos, sin = self.cos[first : first + len(y)], self.sin[first : first + len(y)]
        return self.torch.cat((a * cos - b * sin, b * cos + a * sin), -1).transpose(0, 1)[None]

    def _pass(self, X: Any, first: int, g: int) -> Any:
        """``X [T, talker_hidden]`` at positions ``first ..`` -> logits ``[vocab]`` of head ``g`` at the last one."""
        functional, T, end = self.torch.nn.functional, len(X), first + len(X)
        x = self._times(X, "small_to_mtp_projection") if self.spec.projected else X
        for layer in range(self.spec.layers):
            at = f"model.layers.{layer}."
            y = self._norm(x, at + "input_layernorm")
            q = self._rotated(self._times(y, at + "self_attn.q_proj"), at + "self_attn.q_norm", first)
            K, V = self.K[layer, :, :, :end], self.V[layer, :, :, :end]
            K[:, :, first:] = self._rotated(self._times(y, at + "self_attn.k_proj"), at + "self_attn.k_norm", first)
            V[:, :, first:] = self._times(y, at + "self_attn.v_proj").view(T, self.spec.kv_heads, -1).transpose(0, 1)
            # Several tokens come at the start only, where the causal mask is the square that is_causal means.
            y = functional.scaled_dot_product_attention(q, K, V, is_causal=T > 1, enable_gqa=True)
            x = x + self._times(y[0].transpose(0, 1).reshape(T, -1), at + "self_attn.o_proj")
            y = self._norm(x, at + "post_attention_layernorm")
            y = functional.silu(self._times(y, at + "mlp.gate_proj")) * self._times(y, at + "mlp.up_proj")
            x = x + self._times(y, at + "mlp.down_proj")
        return self._times(self._norm(x[-1], "model.norm"), f"lm_head.{g}")


@variant("torch_manual", format="f32", arithmetic="torch_manual", tier="codes", extra="torch")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers in torch's functional operators, weights in float32."""
    return ManualPredictor(model, threads)
