"""The code predictor in float64, in plain numpy, written from the published equations and not from the lab's code."""

from __future__ import annotations

import numpy as np


class Float64Predictor:
    """One frame at a time, all positions from scratch in each pass.

    ``weights(name)`` gives a tensor by its checkpoint name; it is asked for each time, so that a large model is never
    held in float64.
    """

    def __init__(self, spec, weights) -> None:
        self.spec, self.weights = spec, weights
        self.intermediates: list[np.ndarray] = []

    def frame(self, hidden, cb0_embed, forced=None):
        """``(codes [passes], logits [passes, vocab])``."""
        X = [self.project(hidden), self.project(cb0_embed)]
        codes, logits = [], []
        for g in range(self.spec.groups - 1):
            x = self.layers(np.stack(X))[-1]
            logits.append(self.w(f"lm_head.{g}.weight") @ self.norm(x, self.w("model.norm.weight")))
            codes.append(int(np.argmax(logits[-1])))
            fed = codes[-1] if forced is None else int(forced[g])
            X.append(self.project(self.w(f"model.codec_embedding.{g}.weight")[fed]))
        return np.array(codes), np.stack(logits)

    def w(self, name):
        return np.asarray(self.weights(name), np.float64)

    def project(self, x):
        x = np.asarray(x, np.float64)
        if not self.spec.projected:
            return x
        return self.w("small_to_mtp_projection.weight") @ x + self.w("small_to_mtp_projection.bias")

    def norm(self, x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.spec.rms_eps) * weight

    def rope(self, x):
        """``[positions, heads, d]``: complex rotation of the pairs (k, k + d/2)."""
        d = x.shape[-1]
        angle = np.arange(len(x))[:, None] * self.spec.rope_theta ** (-2.0 * np.arange(d // 2) / d)
        turned = (x[..., : d // 2] + 1j * x[..., d // 2 :]) * np.exp(1j * angle)[:, None]
        return np.concatenate([turned.real, turned.imag], -1)

    def layers(self, X):
        spec = self.spec
        n, d, kv = len(X), spec.head_dim, spec.kv_heads
        future = np.triu(np.full((n, n), -np.inf), 1)
        for layer in range(spec.layers):
            at = f"model.layers.{layer}."
            y = self.norm(X, self.w(at + "input_layernorm.weight"))
            q, k, v = ((y @ self.w(f"{at}self_attn.{c}_proj.weight").T).reshape(n, -1, d) for c in "qkv")
            q = self.rope(self.norm(q, self.w(at + "self_attn.q_norm.weight"))).reshape(n, kv, -1, d)
            k = self.rope(self.norm(k, self.w(at + "self_attn.k_norm.weight")))
            scores = np.einsum("pgsd,jgd->gspj", q, k) / np.sqrt(d) + future
            p = np.exp(scores - scores.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            attended = np.einsum("gspj,jgd->pgsd", p, v).reshape(n, -1)
            X = X + attended @ self.w(at + "self_attn.o_proj.weight").T
            y = self.norm(X, self.w(at + "post_attention_layernorm.weight"))
            gate, up = y @ self.w(at + "mlp.gate_proj.weight").T, y @ self.w(at + "mlp.up_proj.weight").T
            with np.errstate(over="ignore"):
                self.intermediates.append(gate / (1 + np.exp(-gate)) * up)
            X = X + self.intermediates[-1] @ self.w(at + "mlp.down_proj.weight").T
        return X
