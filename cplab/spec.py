"""Spec: every dimension of a code predictor, read from the model's own metadata.

The official Python classes have defaults that are wrong for the published checkpoints (rope theta 1e4 for 1e6,
32 code groups for 16), so nothing here has a default: a Spec is complete or it does not exist.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from cplab.constants import LANES
from cplab.errors import UnreadableModelError

#: Beyond these a number is a damaged header, and believing it would take all memory.
_LARGEST, _MOST = 1 << 20, 1024


@dataclass(frozen=True, slots=True)
class Spec:
    """Dimensions of one code predictor.

    Attributes:
        hidden: width of the residual stream.
        intermediate: width of the feed-forward layer.
        layers: transformer layers.
        heads: query heads.
        kv_heads: key/value heads; ``heads`` is a multiple.
        head_dim: width of a head; not ``hidden // heads`` (1024 / 16 is 64, the model has 128).
        vocab: codes in a codebook.
        groups: codebooks of a frame, CB0 included.
        rope_theta: base of the rotary embedding.
        rms_eps: epsilon of every RMSNorm.
        talker_hidden: width of the talker, and so of ``hidden``, ``cb0_embed`` and the codec embeddings.
        projected: whether inputs pass ``small_to_mtp_projection`` (1.7B) or go in as they are (0.6B).
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    groups: int
    rope_theta: float
    rms_eps: float
    talker_hidden: int
    projected: bool

    def __post_init__(self) -> None:
        for name in ("hidden", "intermediate", "head_dim", "vocab", "talker_hidden"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 < value <= _LARGEST or value % LANES:
                raise UnreadableModelError(f"spec: {name} is {value}; it must be a positive multiple of {LANES}")
        for name, least in (("layers", 1), ("heads", 1), ("kv_heads", 1), ("groups", 2)):
            value = getattr(self, name)
            if not isinstance(value, int) or not least <= value <= _MOST:
                raise UnreadableModelError(f"spec: {name} is {value}; {least} to {_MOST} make sense")
        for name in ("rope_theta", "rms_eps"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UnreadableModelError(f"spec: {name} is {value}; a positive number is wanted")
        if self.heads % self.kv_heads:
            raise UnreadableModelError(f"spec: {self.heads} heads cannot share {self.kv_heads} key/value heads")
        if not self.projected and self.talker_hidden != self.hidden:
            raise UnreadableModelError(
                f"spec: talker width {self.talker_hidden} differs from {self.hidden} "
                "and there is no small_to_mtp_projection"
            )

    @property
    def passes(self) -> int:
        """Passes of a plain frame, one for each predicted codebook."""
        return self.groups - 1

    @property
    def positions(self) -> int:
        """Positions of a frame: hidden, CB0, and every predicted code but the last."""
        return self.groups

    @property
    def q_rows(self) -> int:
        """Rows of q_proj."""
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        """Rows of k_proj and of v_proj."""
        return self.kv_heads * self.head_dim

    @property
    def weights_per_pass(self) -> int:
        """Weights that one pass reads: the layers' matrices and one head (norms and embedding rows left out)."""
        layer = (
            (self.q_rows + 2 * self.kv_rows) * self.hidden
            + self.hidden * self.q_rows
            + 3 * self.hidden * self.intermediate
        )
        return self.layers * layer + self.vocab * self.hidden

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every tensor, as in the checkpoint without its ``talker.code_predictor.`` prefix."""
        h, f, d = self.hidden, self.intermediate, self.head_dim
        shapes: dict[str, tuple[int, ...]] = {}
        for layer in range(self.layers):
            at = f"model.layers.{layer}."
            shapes |= {
                at + "input_layernorm.weight": (h,),
                at + "self_attn.q_proj.weight": (self.q_rows, h),
                at + "self_attn.k_proj.weight": (self.kv_rows, h),
                at + "self_attn.v_proj.weight": (self.kv_rows, h),
                at + "self_attn.q_norm.weight": (d,),
                at + "self_attn.k_norm.weight": (d,),
                at + "self_attn.o_proj.weight": (h, self.q_rows),
                at + "post_attention_layernorm.weight": (h,),
                at + "mlp.gate_proj.weight": (f, h),
                at + "mlp.up_proj.weight": (f, h),
                at + "mlp.down_proj.weight": (h, f),
            }
        shapes["model.norm.weight"] = (h,)
        for group in range(self.groups - 1):
            shapes[f"model.codec_embedding.{group}.weight"] = (self.vocab, self.talker_hidden)
        for group in range(self.groups - 1):
            shapes[f"lm_head.{group}.weight"] = (self.vocab, h)
        if self.projected:
            shapes["small_to_mtp_projection.weight"] = (h, self.talker_hidden)
            shapes["small_to_mtp_projection.bias"] = (h,)
        return shapes

    def as_dict(self) -> dict[str, Any]:
        """The fields as plain JSON-able values."""
        return asdict(self)


_PUBLISHED = {
    "hidden": 1024,
    "intermediate": 3072,
    "layers": 5,
    "heads": 16,
    "kv_heads": 8,
    "head_dim": 128,
    "vocab": 2048,
    "groups": 16,
    "rope_theta": 1e6,
    "rms_eps": 1e-6,
}

#: The published shapes, which differ in the talker's width only, and two tiny ones for tests: the second has rows of
#: whole superblocks of 256 weights.
PRESETS: dict[str, Spec] = {
    "0.6b": Spec(**_PUBLISHED, talker_hidden=1024, projected=False),  # type: ignore[arg-type]
    "1.7b": Spec(**_PUBLISHED, talker_hidden=2048, projected=True),  # type: ignore[arg-type]
    "tiny": Spec(
        hidden=64,
        intermediate=192,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=32,
        vocab=256,
        groups=3,
        rope_theta=1e6,
        rms_eps=1e-6,
        talker_hidden=64,
        projected=False,
    ),
    "tiny-wide": Spec(
        hidden=256,
        intermediate=768,
        layers=2,
        heads=4,
        kv_heads=2,
        head_dim=64,
        vocab=256,
        groups=3,
        rope_theta=1e6,
        rms_eps=1e-6,
        talker_hidden=256,
        projected=False,
    ),
}
