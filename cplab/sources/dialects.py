"""The names that engines' converters give the code predictor in GGUF files, one small table for each.

Where a table has ``{i}``, each codebook has a tensor of its own; where it has not, one tensor holds all codebooks, one
after another along its first axis. A Spec field's sources are tried in order. The talker's keys stand in only where
the converter writes no other and the engine's own reader uses the talker's for both; class defaults never do.

Sources: predict-woo/qwen3-tts.cpp and its forks (``scripts/convert_tts_to_gguf.py``), ServeurpersoCom/qwentts.cpp,
CrispStrobe/CrispASR (``models/convert-qwen3-tts-to-gguf.py``), HaujetZhao/Qwen3-TTS-GGUF
(``31-Extract-Predictor-Weights.py``), ggml-org/llama.cpp (``conversion/qwen3tts.py``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cplab.sources.gguf_header import Header

#: How a number is taken: from a key; rows or width of a tensor; size of a stack plus CB0, or rows in it; rows of a
#: concatenation over codebooks.
Take = Literal["key", "rows", "width", "stack", "stack rows", "concatenated rows"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number of the Spec is found.

    Attributes:
        at: a metadata key, or a tensor's name.
        take: how.
        talkers: the key is the talker's, which this dialect's reader uses for the code predictor too.
    """

    at: str
    take: Take = "key"
    talkers: bool = False


@dataclass(frozen=True, slots=True)
class Dialect:
    """One converter's names.

    Attributes:
        name: who writes it.
        architecture: ``general.architecture`` of its files.
        prefix: of every tensor that is the code predictor's.
        names: part of the checkpoint -> templates, the first that the file has counts.
        sources: Spec field -> where its value is found; the first source's key is the one that a refusal names.
        foreign: other tensors belong there and are passed over: all without the prefix, and these.
        takes_foreign: whether tensors without the prefix are passed over at all, or refused as left over.
        tables_projected: the tables of a 1.7B went through the projection and the projection is not in the file.
        side_files: heads and tables lie in files beside it.
        note: what `inspect` adds.
        advice: Spec field -> what is known of it where the file says nothing; told, never assumed.
    """

    name: str
    architecture: str
    prefix: str
    names: Mapping[str, tuple[str, ...]]
    sources: Mapping[str, tuple[Source, ...]]
    foreign: tuple[str, ...] = ()
    takes_foreign: bool = True
    tables_projected: bool = False
    side_files: bool = False
    note: str = ""
    advice: Mapping[str, str] = field(default_factory=dict)

    def stored_names(self, checkpoint_name: str) -> Iterator[tuple[str, int | None]]:
        """Names that a tensor may have in a file, each with its index where it lies among all codebooks'."""
        stem, kind = checkpoint_name.rsplit(".", 1)
        part, number = _split(stem)
        for template in self.names[part]:
            stored = f"{template.format(n=number, i=number)}.{kind}"
            yield stored, number if "{" not in template else None

    def checkpoint_name(self, stored_name: str) -> str | None:
        """The other way round; ``lm_head.*.weight`` for a tensor that holds all codebooks', None where it is none."""
        stem, _, kind = stored_name.rpartition(".")
        for part, templates in self.names.items():
            for template in templates:
                pattern = re.escape(template).replace(r"\{n\}", r"(\d+)").replace(r"\{i\}", r"(\d+)")
                match = re.fullmatch(pattern, stem)
                if match is None:
                    continue
                if part in LAYER_PARTS:
                    return f"model.layers.{match[1]}.{part}.{kind}"
                if part in CODEBOOK_PARTS:
                    return f"{part}.{match[1] if '{' in template else '*'}.{kind}"
                return f"{part}.{kind}"
        return None

    def passes_over(self, stored_name: str) -> bool:
        """Whether a tensor is not the code predictor's and may be there."""
        if stored_name in self.foreign:
            return True
        return self.takes_foreign and not stored_name.startswith(self.prefix)


CODEBOOK_PARTS = ("model.codec_embedding", "lm_head")


def _split(stem: str) -> tuple[str, int | None]:
    """``model.layers.3.mlp.up_proj`` -> ``("mlp.up_proj", 3)``, ``lm_head.2`` -> ``("lm_head", 2)``."""
    if match := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
        return match[2], int(match[1])
    if match := re.fullmatch(r"(model\.codec_embedding|lm_head)\.(\d+)", stem):
        return match[1], int(match[2])
    return stem, None


def _blocks(
    at: str, *, norms: tuple[str, str] = ("attn_norm", "ffn_norm"), output: str = "attn_output"
) -> dict[str, tuple[str, ...]]:
    """A layer's names, the same everywhere but for three of them."""
    names = {
        "input_layernorm": norms[0],
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm",
        "self_attn.o_proj": output,
        "post_attention_layernorm": norms[1],
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    return {part: (f"{at}.{{n}}.{name}",) for part, name in names.items()}


LAYER_PARTS = tuple(_blocks(""))


def _keys(*keys: str) -> tuple[Source, ...]:
    return tuple(Source(key) for key in keys)


def _talkers(*keys: str) -> tuple[Source, ...]:
    return tuple(Source(key, talkers=True) for key in keys)


_OWN_KEYS = {
    "hidden": "qwen3-tts.code_pred.embedding_length",
    "intermediate": "qwen3-tts.code_pred.feed_forward_length",
    "layers": "qwen3-tts.code_pred.block_count",
    "heads": "qwen3-tts.code_pred.attention.head_count",
    "kv_heads": "qwen3-tts.code_pred.attention.head_count_kv",
    "head_dim": "qwen3-tts.code_pred.attention.key_length",
    "vocab": "qwen3-tts.code_pred.vocab_size",
    "rope_theta": "qwen3-tts.code_pred.rope.freq_base",
    "rms_eps": "qwen3-tts.code_pred.attention.layer_norm_rms_epsilon",
    "groups": "qwen3-tts.num_code_groups",
    "talker_hidden": "qwen3-tts.talker.embedding_length",
}

OWN = Dialect(
    name="own",
    architecture="qwen3-tts",
    prefix="code_pred.",
    names={
        **_blocks("code_pred.blk"),
        "model.norm": ("code_pred.output_norm",),
        "model.codec_embedding": ("code_pred.codec_embd.{i}",),
        "lm_head": ("code_pred.lm_head.{i}",),
        "small_to_mtp_projection": ("code_pred.mtp_proj",),
    },
    sources={field: _keys(key) for field, key in _OWN_KEYS.items()},
    takes_foreign=False,
)

#: Talker and code predictor in one file; every key of the code predictor is written.
QWENTTS = Dialect(
    name="qwentts.cpp",
    architecture="qwen3-tts",
    prefix="code_pred.",
    names=OWN.names,
    sources=OWN.sources,
    note="talker and code predictor in one file",
)

_WOO = "qwen3-tts.code_predictor."
PREDICT_WOO = Dialect(
    name="predict-woo",
    architecture="qwen3-tts",
    prefix="code_pred.",
    names={**OWN.names, "small_to_mtp_projection": ("code_pred.mtp_proj", "code_pred.small_to_mtp")},
    sources={
        "hidden": (
            *_keys(_OWN_KEYS["hidden"], _WOO + "embedding_length"),
            Source("code_pred.output_norm.weight", "rows"),
        ),
        "intermediate": (
            *_keys(_OWN_KEYS["intermediate"], _WOO + "feed_forward_length"),
            Source("code_pred.blk.0.ffn_gate.weight", "rows"),
        ),
        "layers": _keys("qwen3-tts.code_pred.layer_count", _OWN_KEYS["layers"], _WOO + "layer_count"),
        "vocab": _keys(_OWN_KEYS["vocab"], _WOO + "vocab_size"),
        "groups": _keys(_OWN_KEYS["groups"], "qwen3-tts.talker.num_codebooks"),
        "talker_hidden": _keys(_OWN_KEYS["talker_hidden"], "qwen3-tts.embedding_length"),
        **{
            field: (
                *_keys(_OWN_KEYS[field], _WOO + key),
                *_talkers("qwen3-tts.talker." + key, "qwen3-tts." + key),
            )
            for field, key in {
                "heads": "attention.head_count",
                "kv_heads": "attention.head_count_kv",
                "head_dim": "attention.key_length",
                "rope_theta": "rope.freq_base",
                "rms_eps": "attention.layer_norm_rms_epsilon",
            }.items()
        },
    },
    note="the talker's keys count for both where the code predictor has none: so does this engine's reader",
)

_CRISP, _CRISP_TALKER = "qwen3tts.code_pred.", "qwen3tts.talker."
CRISPASR = Dialect(
    name="CrispASR",
    architecture="qwen3tts",
    prefix="code_pred.",
    names={
        **_blocks("code_pred.blk"),
        "model.norm": ("code_pred.output_norm",),
        "model.codec_embedding": ("code_pred.token_embd.{i}",),
        "lm_head": ("code_pred.output.{i}",),
        "small_to_mtp_projection": ("code_pred.small_to_mtp",),
    },
    # The first dialect's keys come last: a fork may carry this one's tensors under that one's keys.
    sources={
        field: (*sources, *_keys(_OWN_KEYS[field]))
        for field, sources in {
            "hidden": _keys(_CRISP + "d_model"),
            "intermediate": (*_keys(_CRISP + "ff_dim"), Source("code_pred.blk.0.ffn_gate.weight", "rows")),
            "layers": _keys(_CRISP + "n_layers"),
            "heads": _keys(_CRISP + "n_heads"),
            "kv_heads": _keys(_CRISP + "n_kv_heads"),
            "head_dim": (*_keys(_CRISP + "head_dim"), *_talkers(_CRISP_TALKER + "head_dim")),
            "vocab": _keys(_CRISP + "vocab_size"),
            "rope_theta": (*_keys(_CRISP + "rope_theta"), *_talkers(_CRISP_TALKER + "rope_theta")),
            "rms_eps": (*_keys(_CRISP + "rms_norm_eps"), *_talkers(_CRISP_TALKER + "rms_norm_eps")),
            "groups": _keys(_CRISP + "n_code_groups", _CRISP_TALKER + "n_code_groups"),
            "talker_hidden": _keys(_CRISP_TALKER + "d_model"),
        }.items()
    },
    note="talker and code predictor in one file; theta, epsilon and head width are the talker's keys",
)

_GEN = "clip.gen.audio."
LLAMA_CPP = Dialect(
    name="llama.cpp mmproj",
    architecture="clip",
    prefix="a.gen.code.",
    names={
        **_blocks("a.gen.code.blk", norms=("ln1", "ln2"), output="attn_out"),
        "model.norm": ("a.gen.code.output_norm",),
        "model.codec_embedding": ("a.gen.code.embd",),
        "lm_head": ("a.gen.code.head",),
        "small_to_mtp_projection": ("a.gen.code.proj_in",),
    },
    sources={
        "hidden": _keys(_GEN + "embedding_length"),
        "intermediate": _keys(_GEN + "feed_forward_length"),
        "layers": _keys(_GEN + "block_count"),
        "heads": _keys(_GEN + "attention.head_count"),
        "kv_heads": _keys(_GEN + "attention.head_count_kv"),
        "head_dim": (*_keys(_GEN + "attention.key_length"), Source("a.gen.code.blk.0.attn_q_norm.weight", "rows")),
        "vocab": (*_keys(_GEN + "vocab_size"), Source("a.gen.code.head.weight", "stack rows")),
        "rope_theta": _keys(_GEN + "rope.freq_base"),
        "rms_eps": _keys(_GEN + "attention.layer_norm_epsilon", _GEN + "attention.layer_norm_rms_epsilon"),
        "groups": (*_keys(_GEN + "num_code_groups"), Source("a.gen.code.head.weight", "stack")),
        "talker_hidden": _keys(_GEN + "projection_dim"),
    },
    foreign=("a.gen.code.out_embd.weight",),
    note="tables and heads are stacked",
    advice={"rope_theta": "llama.cpp's converter writes none and its reader takes 1000000.0"},
)

_QWEN3 = {
    "hidden": _keys("qwen3.embedding_length"),
    "intermediate": _keys("qwen3.feed_forward_length"),
    "layers": _keys("qwen3.block_count"),
    "heads": _keys("qwen3.attention.head_count"),
    "kv_heads": _keys("qwen3.attention.head_count_kv"),
    "head_dim": _keys("qwen3.attention.key_length"),
    "rope_theta": _keys("qwen3.rope.freq_base"),
    "rms_eps": _keys("qwen3.attention.layer_norm_rms_epsilon"),
}
HAUJETZHAO = Dialect(
    name="HaujetZhao",
    architecture="qwen3",
    prefix="",
    names={
        **_blocks("blk"),
        "model.norm": ("output_norm",),
        "model.codec_embedding": ("token_embd",),
        "lm_head": ("output",),
    },
    sources={
        **_QWEN3,
        "groups": _keys("qwen3.num_code_groups", "qwen3-tts.num_code_groups"),
        "vocab": (Source("output.weight", "concatenated rows"),),
        "talker_hidden": (*_keys("qwen3-tts.talker.embedding_length"), Source("token_embd.weight", "width")),
    },
    takes_foreign=False,
    tables_projected=True,
    note="a plain Qwen3 file, tables and heads concatenated; without a projection, inputs are as wide as the tables",
    advice={"groups": "a plain Qwen3 file says nothing of codebooks, and a language model has none"},
)

KAZEIA = Dialect(
    name="Kazeia",
    architecture="qwen3",
    prefix="",
    names={
        **_blocks("blk"),
        "model.norm": ("output_norm",),
        "model.codec_embedding": ("code_pred.codec_embd.{i}", "codec_embd"),
        "lm_head": ("code_pred.lm_head.{i}", "heads"),
        "small_to_mtp_projection": ("code_pred.mtp_proj", "mtp_proj"),
    },
    sources={
        **_QWEN3,
        "groups": (*_keys("qwen3-tts.num_code_groups"), Source("heads.weight", "stack")),
        "vocab": (
            Source("code_pred.lm_head.0.weight", "rows"),
            Source("heads.weight", "stack rows"),
            Source("heads.weight", "concatenated rows"),
        ),
        "talker_hidden": (
            *_keys("qwen3-tts.talker.embedding_length"),
            Source("code_pred.codec_embd.0.weight", "width"),
            Source("codec_embd.weight", "width"),
        ),
    },
    # llama.cpp loads no qwen3 file without a table, so there may be one of no meaning.
    foreign=("token_embd.weight",),
    takes_foreign=False,
    side_files=True,
    note="layers here, heads and tables in files beside it",
    advice={"groups": "heads in single tensors do not count themselves"},
)

DIALECTS = (OWN, QWENTTS, PREDICT_WOO, CRISPASR, HAUJETZHAO, LLAMA_CPP, KAZEIA)


def dialect_of(header: Header) -> Dialect | None:
    """Which dialect a file is written in, or None where it holds no code predictor."""
    architecture = header.keys.get("general.architecture")

    def any_tensor(*starts: str) -> bool:
        return any(name.startswith(starts) for name in header.tensors)

    if architecture in (OWN.architecture, CRISPASR.architecture) and any_tensor("code_pred."):
        if any_tensor("code_pred.token_embd.", "code_pred.output."):
            return CRISPASR
        if any(key.startswith((_WOO, "qwen3-tts.code_pred.layer_count")) for key in header.keys):
            return PREDICT_WOO
        # One stray tensor of the talker's is damage; its table, head or layers are a full file.
        full = any_tensor("talker.blk.", "talker.codec_embd.", "talker.codec_head.", "talker.text_embd.")
        return QWENTTS if full else OWN
    if architecture == "clip" and any_tensor("a.gen.code."):
        return LLAMA_CPP
    if architecture == "qwen3" and any_tensor("blk."):
        return HAUJETZHAO if "output.weight" in header.tensors else KAZEIA
    return None
