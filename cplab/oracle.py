"""The oracle: a whole frame in the canonical arithmetic, recomputed from scratch each pass; slow on purpose.

It keeps nothing between passes, so there is no cache to get wrong: pass g runs positions 0..g+1 through all layers
and reads the last one. Goldens come from here only. Methods are small so that the gate's tests can break one each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab import arithmetic as law
from cplab.constants import attention_scale
from cplab.errors import NonFiniteLogitsError
from cplab.model import Model, Tensor
from cplab.rope import rope_table
from cplab.sampling import Draws

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class OracleFrame:
    """``codes [groups-1] int32`` and ``logits [groups-1, vocab] f32`` of one frame."""

    codes: NDArray[np.int32]
    logits: NDArray[np.float32]


class Oracle:
    """The law applied to a model. One frame at the 0.6B shape takes seconds."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.spec = model.spec
        self.scale = np.float32(attention_scale(self.spec.head_dim))
        self.eps = np.float32(self.spec.rms_eps)
        self.cos, self.sin = rope_table(self.spec)
        # Embedding tables are read row by row; everything else is decoded once.
        self.weights: dict[str, Any] = {
            name: self.decoded(t) for name, t in model.tensors.items() if "codec_embedding" not in name
        }

    def frame(
        self, hidden: Vector, cb0_embed: Vector, forced: NDArray[np.int32] | None = None, draws: Draws | None = None
    ) -> OracleFrame:
        """One frame: ``hidden [talker_hidden]``, ``cb0_embed [talker_hidden]``, ``forced [groups-1]`` or None.

        Codes are drawn as the first frame of ``draws`` says; they are the largest logits' where that is None.

        Raises:
            NonFiniteLogitsError: with the pass in which it happened.
        """
        logits = np.empty((self.spec.passes, self.spec.vocab), np.float32)
        codes = np.empty(self.spec.passes, np.int32)
        inputs = [hidden, cb0_embed]
        for g in range(self.spec.passes):
            logits[g] = self.pass_logits(g, inputs)
            code = self.code(g, logits[g], draws)
            if code < 0:
                raise NonFiniteLogitsError(0, g)
            codes[g] = code
            if g + 1 < self.spec.passes:
                inputs.append(self.embedding(g, code if forced is None else int(forced[g])))
        return OracleFrame(codes, logits)

    def pass_logits(self, g: int, inputs: list[Vector]) -> Vector:
        """Logits ``[vocab]`` of pass ``g`` from all inputs so far, ``g + 2`` vectors ``[talker_hidden]``."""
        residual = self.layers(np.stack([self.project(x) for x in inputs]))
        return self.head(g, self.norm(residual[-1], "model.norm.weight"))

    def scored(
        self, hidden: Vector, cb0_embed: Vector, forced: NDArray[np.int32], draws: Draws | None = None
    ) -> OracleFrame:
        """Teacher-forced logits of all codebooks from one pass over all positions.

        A position sees only those before it, so this is `frame` with ``forced`` at an eighth of the work; a test holds
        the two against each other.
        """
        embedded = [self.embedding(g, int(forced[g])) for g in range(self.spec.passes - 1)]
        residual = self.layers(np.stack([self.project(x) for x in (hidden, cb0_embed, *embedded)]))
        heads = [self.head(g, self.norm(residual[g + 1], "model.norm.weight")) for g in range(self.spec.passes)]
        codes = np.array([self.code(g, row, draws) for g, row in enumerate(heads)], np.int32)
        if (codes < 0).any():
            raise NonFiniteLogitsError(0, int(np.argmax(codes < 0)))
        return OracleFrame(codes, np.stack(heads))

    def code(self, g: int, logits: Vector, draws: Draws | None) -> int:
        """The code of pass ``g`` from its logits ``[vocab]``, or -1."""
        return int(law.argmax(logits)) if draws is None else draws.code(0, g, logits)

    def decoded(self, tensor: Tensor) -> Any:
        """A tensor as this oracle computes with it."""
        return tensor.f32()

    def embedding(self, group: int, code: int) -> Vector:
        """Row ``code`` of the table for CB(group+1), ``[talker_hidden]``."""
        table = self.model.tensors[f"model.codec_embedding.{group}.weight"]
        return table.format.unpack(table.data[code])

    def project(self, x: Vector) -> Vector:
        """``small_to_mtp_projection`` where the model has one: ``[talker_hidden] -> [hidden]``."""
        if not self.spec.projected:
            return x
        y = self.linear("small_to_mtp_projection.weight", x)
        law.add(y, self.weights["small_to_mtp_projection.bias"])
        return y

    def linear(self, name: str, x: Vector) -> Vector:
        """``W @ x`` row by row."""
        W = self.weights[name]
        y = np.empty(len(W), np.float32)
        law.matvec(W, x, y)
        return y

    def norm(self, x: Vector, name: str) -> Vector:
        """RMSNorm of ``x`` with the named weight."""
        y = np.empty_like(x)
        law.rms_norm(x, self.weights[name], self.eps, y)
        return y

    def head(self, group: int, x: Vector) -> Vector:
        """Logits of codebook group + 1, ``[vocab]``."""
        return self.linear(f"lm_head.{group}.weight", x)

    def layers(self, residual: Vector) -> Vector:
        """All layers over ``residual [positions, hidden]``."""
        for layer in range(self.spec.layers):
            at = f"model.layers.{layer}."
            attended = self.attention(
                at + "self_attn.", [self.norm(x, at + "input_layernorm.weight") for x in residual]
            )
            residual = residual.copy()
            for x, y in zip(residual, attended, strict=True):
                law.add(x, self.linear(at + "self_attn.o_proj.weight", y))
                law.add(x, self.feed_forward(at, self.norm(x, at + "post_attention_layernorm.weight")))
        return residual

    def attention(self, at: str, normed: list[Vector]) -> list[Vector]:
        """Causal grouped-query attention: ``positions x [hidden] -> positions x [heads * head_dim]``."""
        d = self.spec.head_dim
        shared = self.spec.heads // self.spec.kv_heads
        Q = [self.rotated(self.linear(at + "q_proj.weight", x), at + "q_norm.weight", p) for p, x in enumerate(normed)]
        K = [self.rotated(self.linear(at + "k_proj.weight", x), at + "k_norm.weight", p) for p, x in enumerate(normed)]
        V = [self.linear(at + "v_proj.weight", x).reshape(-1, d) for x in normed]
        attended = []
        for p in range(len(normed)):
            y = np.empty((self.spec.heads, d), np.float32)
            for head in range(self.spec.heads):
                keys = np.stack([k[head // shared] for k in K[: p + 1]])
                values = np.stack([v[head // shared] for v in V[: p + 1]])
                law.attend(Q[p][head], keys, values, self.scale, y[head])
            attended.append(y.reshape(-1))
        return attended

    def rotated(self, x: Vector, norm: str, position: int) -> Vector:
        """Per-head RMSNorm, then RoPE: ``[heads * head_dim] -> [heads, head_dim]``."""
        heads = np.stack([self.norm(head, norm) for head in x.reshape(-1, self.spec.head_dim)])
        for head in heads:
            law.rotate(head, self.cos[position], self.sin[position])
        return heads

    def feed_forward(self, at: str, x: Vector) -> Vector:
        """``down(silu(gate(x)) * up(x))``."""
        gate, up = self.linear(at + "mlp.gate_proj.weight", x), self.linear(at + "mlp.up_proj.weight", x)
        y = np.empty_like(gate)
        law.swiglu(gate, up, y)
        return self.linear(at + "mlp.down_proj.weight", y)
