"""numpy, float32, KV cache: what one would write first, on the BLAS that numpy brings.

The idea: none; it is the yardstick. Every matrix is ``W @ x`` through BLAS sgemv with BLAS threads, attention and norms
are a few numpy calls. BLAS sums in its own order, so its logits differ from the canonical ones in the last bits: tier
`codes`, every code must still be the golden's.

Cost of a frame at the published shape: 4.85 GB of weights, 1.3 G multiply-adds and about 3,000 Python calls.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from cplab.constants import attention_scale
from cplab.errors import NonFiniteLogitsError
from cplab.model import Model, is_streamed
from cplab.rope import rope_table
from cplab.sampling import Draws, Noise, checked_draws, choose
from cplab.variant import CodePredictor, Trace, WeightStream, checked_inputs, variant

Array = NDArray[np.float32]


class NumpyPredictor:
    """See `cplab.variant.CodePredictor`."""

    def __init__(self, model: Model, threads: int) -> None:
        self.model, self.spec, self.threads = model, model.spec, threads
        self.cos, self.sin = rope_table(self.spec)
        self.scale = np.float32(attention_scale(self.spec.head_dim))
        self.weights = {n: np.ascontiguousarray(t.f32()) for n, t in model.tensors.items() if "embedding" not in n}
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
        """See `cplab.variant.CodePredictor.predict`."""
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.spec, noise, len(hidden))
        from threadpoolctl import threadpool_limits  # sets variables of the process when imported

        spec = self.spec
        codes = np.empty((len(hidden), spec.passes), np.int32)
        logits = np.empty((len(hidden), spec.passes, spec.vocab), np.float32)
        pass_ns = np.zeros(spec.passes, np.int64)
        with threadpool_limits(self.threads, "blas"):
            for b in range(len(hidden)):
                fed = None if forced is None else forced[b]
                self._frame(b, hidden[b], cb0_embed[b], fed, draws, codes, logits, pass_ns)
        if trace is not None:
            trace.logits, trace.pass_ns = logits, pass_ns
        return codes

    def streams(self) -> list[WeightStream]:
        """Every matrix in the order of a frame."""
        matrices = {n: w for n, w in self.weights.items() if is_streamed(n)}
        streams = {n: WeightStream(w.ctypes.data, len(w), w.strides[0]) for n, w in matrices.items()}
        body = [s for n, s in streams.items() if not n.startswith("lm_head")]
        return [s for g in range(self.spec.passes) for s in (*body, streams[f"lm_head.{g}.weight"])]

    def _frame(
        self,
        b: int,
        hidden: Array,
        cb0: Array,
        forced: NDArray[np.int32] | None,
        draws: Draws | None,
        codes: NDArray[np.int32],
        logits: Array,
        pass_ns: NDArray[np.int64],
    ) -> None:
        spec = self.spec
        shape = (spec.layers, spec.kv_heads, spec.positions, spec.head_dim)
        K, V = np.empty(shape, np.float32), np.empty(shape, np.float32)
        X = np.stack([hidden, cb0])
        first = 0
        for g in range(spec.passes):
            started = time.perf_counter_ns()
            x = self._layers(self._project(X), first, K, V)
            logits[b, g] = self.weights[f"lm_head.{g}.weight"] @ self._norm(x[-1], "model.norm.weight")
            codes[b, g] = choose(logits[b, g], draws, b, g)
            if codes[b, g] < 0:
                raise NonFiniteLogitsError(b, g)
            first += len(X)
            fed = int(codes[b, g] if forced is None else forced[g])
            table = self.model.tensors[f"model.codec_embedding.{g}.weight"]
            X = table.format.unpack(table.data[fed : fed + 1])
            pass_ns[g] += time.perf_counter_ns() - started

    def _project(self, X: Array) -> Array:
        if not self.spec.projected:
            return X
        y: Array = X @ self.weights["small_to_mtp_projection.weight"].T + self.weights["small_to_mtp_projection.bias"]
        return y

    def _norm(self, x: Array, name: str) -> Array:
        mean = np.mean(x * x, axis=-1, keepdims=True)
        y: Array = x / np.sqrt(mean + np.float32(self.spec.rms_eps)) * self.weights[name]
        return y

    def _times(self, X: Array, name: str) -> Array:
        W = self.weights[name]
        return (W @ X[0])[None] if len(X) == 1 else X @ W.T  # one token: sgemv, which streams better than sgemm

    def _rotated(self, X: Array, norm: str, first: int) -> Array:
        heads = self._norm(X.reshape(len(X), -1, self.spec.head_dim), norm)
        a, b = np.split(heads, 2, axis=-1)
        cos, sin = (table[first : first + len(X), None] for table in (self.cos, self.sin))
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def _layers(self, x: Array, first: int, K: Array, V: Array) -> Array:
        spec, T = self.spec, len(x)
        end = first + T
        unseen = np.arange(end)[None, :] > np.arange(first, end)[:, None]
        for layer in range(spec.layers):
            at = f"model.layers.{layer}."
            y = self._norm(x, at + "input_layernorm.weight")
            q = self._rotated(self._times(y, at + "self_attn.q_proj.weight"), at + "self_attn.q_norm.weight", first)
            k = self._rotated(self._times(y, at + "self_attn.k_proj.weight"), at + "self_attn.k_norm.weight", first)
            K[layer, :, first:end] = k.transpose(1, 0, 2)
            values = self._times(y, at + "self_attn.v_proj.weight").reshape(T, spec.kv_heads, spec.head_dim)
            V[layer, :, first:end] = values.transpose(1, 0, 2)
            q = q.reshape(T, spec.kv_heads, -1, spec.head_dim).transpose(1, 2, 0, 3)  # [kv, shared, T, d]
            scores = q @ K[layer, :, None, :end].swapaxes(-1, -2) * self.scale
            scores[..., unseen] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            attended = (p / p.sum(-1, keepdims=True)) @ V[layer, :, None, :end]
            x = x + self._times(attended.transpose(2, 0, 1, 3).reshape(T, -1), at + "self_attn.o_proj.weight")
            y = self._norm(x, at + "post_attention_layernorm.weight")
            gate, up = self._times(y, at + "mlp.gate_proj.weight"), self._times(y, at + "mlp.up_proj.weight")
            with np.errstate(over="ignore"):
                y = gate / (1 + np.exp(-gate)) * up
            x = x + self._times(y, at + "mlp.down_proj.weight")
        return x


@variant("numpy_f32", format="f32", arithmetic="blas_f32", tier="codes")
def build(model: Model, threads: int) -> CodePredictor:
    """KV-cached layers over numpy's BLAS, weights in float32."""
    return NumpyPredictor(model, threads)
