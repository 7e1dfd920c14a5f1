"""The naive low-precision implementation: the measure by which another engine's reduced precision is judged.

numpy, float32, one teacher-forced pass over all positions. Nothing in it is clever: each matrix is rounded to the
engine's weight format and decoded again, the input of each matrix is rounded to what that engine turns activations
into, and everything else is float32. An engine that is further from the truth than twice this one does more than
round. (The idea is flash-attention's: never a tolerance, always the naive implementation's own error.)

Weights and blocks of 32 are rounded by the `gguf` package, so that neither the lab's kernels nor the engine has a part
in the measure. The package decodes Q6_K only; its blocks are those that the lab makes.
"""

from __future__ import annotations

from collections.abc import Mapping

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.constants import attention_scale
from cplab.errors import BadInputError
from cplab.formats import FORMATS, STORED
from cplab.model import Model, is_streamed
from cplab.rope import rope_table

Array = NDArray[np.float32]

#: Weight format -> what an engine that holds weights so rounds the other factor to.
ACTIVATIONS = {
    "f32": "f32",
    "f16": "f16",
    "bf16": "bf16",
    "q8_0": "q8_0",
    "q6_k": "q8_0",
    "q5_0": "q8_0",
    "q4_0": "q8_0",
}


def rounded(values: Array, kind: str) -> Array:
    """``values [..., n]`` as they come back from a format: float rounding, or blocks of 32 along the last axis.

    Beyond the F16 range they come back infinite.

    Raises:
        BadInputError: a format that no rounding is known for.
    """
    require_known(kind)
    if kind == "f32":
        return values
    known = gguf.GGMLQuantizationType[kind.upper()]
    values = np.ascontiguousarray(values)
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        packed = _q6_k(values) if kind == "q6_k" else gguf.quants.quantize(values, known)
        back: Array = gguf.quants.dequantize(packed, known)
    return back.reshape(values.shape)


def _q6_k(values: Array) -> NDArray[np.uint8]:
    """``[..., n]`` -> bytes ``[..., n / 256 * 210]``."""
    packed = np.ascontiguousarray(FORMATS["q6_k"].pack(values))
    return packed.view(np.uint8).reshape(*values.shape[:-1], -1)


def require_known(kind: str) -> None:
    """Raise BadInputError unless a naive rounding is known for a format."""
    if kind not in ACTIVATIONS:
        raise BadInputError(f"no naive rounding is known for format {kind!r}; there are {', '.join(ACTIVATIONS)}")


class Naive:
    """A model as a naive engine of some format, or of a mix of formats, computes it.

    An engine of one format rounds activations to what goes with it. In a mix each matrix reads float32 and makes of it
    what its own format needs: blocks of 32 for a quantised matrix, nothing for one of a float format.

    Args:
        model: the original weights.
        format: of the layers' matrices, a key of `ACTIVATIONS`; or a mix: the format of each matrix by its tensor's
            name, `STORED` for one that stays as the model has it. `STORED` alone: all of them do.
        head_format: of the heads and the projection, where an engine of one format holds them otherwise.

    Attributes:
        formats: what each matrix is rounded to, by its tensor's name.
        activations: what the other factor of each is rounded to.

    Raises:
        BadInputError: a format that no rounding is known for.
    """

    def __init__(self, model: Model, format: str | Mapping[str, str], head_format: str = "") -> None:
        self.model, self.spec = model, model.spec
        names = [name for name in model.tensors if is_streamed(name)]
        if isinstance(format, str) and format != STORED:
            for kind in (format, head_format or format):
                require_known(kind)
            heads = head_format or format
            self.formats = {name: format if name.startswith("model.layers.") else heads for name in names}
            self.activations = {name: ACTIVATIONS[kind] for name, kind in self.formats.items()}
        else:
            self.formats = {name: STORED if isinstance(format, str) else format[name] for name in names}
            self.activations = {name: self._input_in_a_mix(name) for name in names}
        self.cos, self.sin = rope_table(self.spec)
        self.scale = np.float32(attention_scale(self.spec.head_dim))
        self.eps = np.float32(self.spec.rms_eps)
        self._kept: dict[str, Array] = {}

    def scored(self, hidden: Array, cb0_embed: Array, forced: NDArray[np.int32]) -> Array:
        """Teacher-forced logits ``[F, groups-1, vocab]``; non-finite where the format's range does not suffice.

        Args:
            hidden: ``[F, talker_hidden]``.
            cb0_embed: ``[F, talker_hidden]``.
            forced: ``[F, groups-1]``, the codes that are fed back.
        """
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            states = self.states(self.inputs(hidden, cb0_embed, forced))
            heads = [self.times(states[:, g + 1], f"lm_head.{g}.weight") for g in range(self.spec.passes)]
        return np.stack(heads, axis=1)

    def inputs(self, hidden: Array, cb0_embed: Array, forced: NDArray[np.int32]) -> Array:
        """What enters the layers, ``[F, positions, hidden]``: embedded and, in the 1.7B, projected."""
        tables = [self.model.tensors[f"model.codec_embedding.{g}.weight"] for g in range(self.spec.passes - 1)]
        fed = [t.format.unpack(t.data[forced[:, g]]) for g, t in enumerate(tables)]
        X = np.stack([hidden, cb0_embed, *fed], axis=1)
        if not self.spec.projected:
            return X
        return self.times(X, "small_to_mtp_projection.weight") + self._vector("small_to_mtp_projection.bias")

    def states(self, X: Array) -> Array:
        """Hidden states after the final norm, ``[F, positions, hidden]``, of inputs of the same shape."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for layer in range(self.spec.layers):
                at = f"model.layers.{layer}."
                y = self._norm(X, at + "input_layernorm.weight")
                X = X + self.times(self._attended(y, at + "self_attn."), at + "self_attn.o_proj.weight")
                y = self._norm(X, at + "post_attention_layernorm.weight")
                gate, up = self.times(y, at + "mlp.gate_proj.weight"), self.times(y, at + "mlp.up_proj.weight")
                X = X + self.times(gate / (1 + np.exp(-gate)) * up, at + "mlp.down_proj.weight")
            return self._norm(X, "model.norm.weight")

    def times(self, X: Array, name: str) -> Array:
        """``[..., columns] -> [..., rows]``: rounded input, rounded matrix, float32 sums."""
        if name not in self._kept:
            self._kept[name] = self.matrix(name)
        W = self._kept[name]
        # All tokens at once: numpy multiplies a stack of frames one by one, and reads the matrix for each.
        y: Array = rounded(X, self.activations[name]).reshape(-1, W.shape[1]) @ W.T
        return y.reshape(*X.shape[:-1], len(W))

    def matrix(self, name: str) -> Array:
        """A matrix as it comes back from its format, ``[rows, columns]`` f32."""
        kind, values = self.formats[name], self.model.f32(name)
        return values if kind == STORED else rounded(values, kind)

    def _input_in_a_mix(self, name: str) -> str:
        kind = self.formats[name]
        if kind != STORED:
            require_known(kind)
        held = self.model.tensors[name].format if kind == STORED else FORMATS[kind]
        return "f32" if held.blocks is None else ACTIVATIONS[held.name]

    def _vector(self, name: str) -> Array:
        return self.model.f32(name)

    def _norm(self, X: Array, name: str) -> Array:
        y: Array = X / np.sqrt(np.mean(X * X, axis=-1, keepdims=True) + self.eps) * self._vector(name)
        return y

    def _rotated(self, X: Array, norm: str) -> Array:
        """``[F, T, heads * head_dim] -> [F, heads, T, head_dim]``, normed and rotated."""
        heads = X.reshape(*X.shape[:2], -1, self.spec.head_dim).transpose(0, 2, 1, 3)
        a, b = np.split(self._norm(heads, norm), 2, axis=-1)
        cos, sin = self.cos[: X.shape[1]], self.sin[: X.shape[1]]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)

    def _attended(self, X: Array, at: str) -> Array:
        """Causal grouped-query attention, ``[F, T, hidden] -> [F, T, heads * head_dim]``."""
        F, T, _ = X.shape
        shared = self.spec.heads // self.spec.kv_heads
        q = self._rotated(self.times(X, at + "q_proj.weight"), at + "q_norm.weight")
        k = self._rotated(self.times(X, at + "k_proj.weight"), at + "k_norm.weight")
        v = self.times(X, at + "v_proj.weight").reshape(F, T, -1, self.spec.head_dim).transpose(0, 2, 1, 3)
        k, v = (np.repeat(x, shared, axis=1) for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) * self.scale
        scores[..., np.triu(np.ones((T, T), bool), 1)] = -np.inf
        p = np.exp(scores - scores.max(-1, keepdims=True))
        attended: Array = (p / p.sum(-1, keepdims=True)) @ v
        return attended.transpose(0, 2, 1, 3).reshape(F, T, -1)
