"""The talker of a checkpoint: a 28-layer Qwen3 whose vocabulary is CB0's codes, named as llama.cpp names a ``qwen3``.

llama.cpp rotates a ``qwen3`` plainly. The checkpoint's sections of rope (24, 20, 20) come to the same, because the
talker's three position ids are always equal. Its text table and ``text_projection`` make the prompt's embeddings and
are no part of a language model's file: a talker is fed embeddings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from cplab.model import Tensor, values_digest
from cplab.sources.checkpoint import PREFIX, Checkpoint
from cplab.sources.dialects import KAZEIA

_TALKER = "talker."
_PASSED_OVER = (PREFIX, "talker.model.text_embedding.", "talker.text_projection.")


@dataclass(frozen=True, slots=True)
class Qwen3:
    """Dimensions of a file of llama.cpp's ``qwen3`` architecture; fields as in `cplab.spec.Spec`.

    Attributes:
        context: positions that the model was made for.
    """

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rope_theta: float
    rms_eps: float

    def keys(self) -> dict[str, str | bool | int | float]:
        """The metadata that llama.cpp's loader reads; ``no_vocab`` is its word for a model without a tokenizer."""
        return {
            "qwen3.block_count": self.layers,
            "qwen3.context_length": self.context,
            "qwen3.embedding_length": self.hidden,
            "qwen3.feed_forward_length": self.intermediate,
            "qwen3.attention.head_count": self.heads,
            "qwen3.attention.head_count_kv": self.kv_heads,
            "qwen3.attention.key_length": self.head_dim,
            "qwen3.attention.value_length": self.head_dim,
            "qwen3.attention.layer_norm_rms_epsilon": self.rms_eps,
            "qwen3.rope.freq_base": self.rope_theta,
            "qwen3.vocab_size": self.vocab,
            "tokenizer.ggml.model": "no_vocab",
        }


def talker_shapes(dims: Qwen3) -> dict[str, tuple[int, ...]]:
    """Full checkpoint name and shape of every tensor that the talker's transformer has."""
    h, f, d = dims.hidden, dims.intermediate, dims.head_dim
    shapes: dict[str, tuple[int, ...]] = {"talker.model.codec_embedding.weight": (dims.vocab, h)}
    for layer in range(dims.layers):
        at = f"talker.model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": (h,),
            at + "self_attn.q_proj.weight": (dims.heads * d, h),
            at + "self_attn.k_proj.weight": (dims.kv_heads * d, h),
            at + "self_attn.v_proj.weight": (dims.kv_heads * d, h),
            at + "self_attn.q_norm.weight": (d,),
            at + "self_attn.k_norm.weight": (d,),
            at + "self_attn.o_proj.weight": (h, dims.heads * d),
            at + "post_attention_layernorm.weight": (h,),
            at + "mlp.gate_proj.weight": (f, h),
            at + "mlp.up_proj.weight": (f, h),
            at + "mlp.down_proj.weight": (h, f),
        }
    shapes["talker.model.norm.weight"] = (h,)
    shapes["talker.codec_head.weight"] = (dims.vocab, h)
    return shapes


def qwen3_name(checkpoint_name: str) -> str:
    """``talker.model.layers.0.self_attn.q_proj.weight`` -> ``blk.0.attn_q.weight``."""
    fixed = {
        "talker.model.codec_embedding.weight": "token_embd.weight",
        "talker.codec_head.weight": "output.weight",
    }
    if checkpoint_name in fixed:
        return fixed[checkpoint_name]
    return next(KAZEIA.stored_names(checkpoint_name.removeprefix(_TALKER)))[0]


def talker_of(checkpoint: Checkpoint) -> tuple[Qwen3, list[Tensor]]:
    """Dimensions and tensors of the talker, mapped, by full checkpoint name.

    Raises:
        UnreadableModelError: config.json lacks a key, or a tensor is missing, left over, or of another shape.
    """
    section = checkpoint.talker
    section.must_be_plain()
    dims = Qwen3(
        hidden=section.whole("hidden_size"),
        intermediate=section.whole("intermediate_size"),
        layers=section.whole("num_hidden_layers"),
        heads=section.whole("num_attention_heads"),
        kv_heads=section.whole("num_key_value_heads"),
        head_dim=section.whole("head_dim"),
        vocab=section.whole("vocab_size"),
        context=section.whole("max_position_embeddings"),
        rope_theta=section.rope_theta(),
        rms_eps=section.real("rms_norm_eps"),
    )
    given = [name for name in checkpoint.stored if name.startswith(_TALKER) and not name.startswith(_PASSED_OVER)]
    return dims, list(checkpoint.taken(talker_shapes(dims), given).values())


def talker_digest(tensors: Iterable[Tensor]) -> str:
    """Sixteen hex digits over names and *values* of `talker_of`'s tensors, whatever their formats and their order."""
    total = hashlib.sha256()
    for tensor in sorted(tensors, key=lambda t: t.name):
        total.update(tensor.name.encode() + b"\0" + values_digest(tensor.f32()))
    return total.hexdigest()[:16]
