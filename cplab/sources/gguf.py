"""Our own GGUF files: written and read here, with the names that predict-woo and qwentts.cpp gave the tensors.

The reader takes nothing for granted: every key must be there, every tensor is used exactly once, and a file that ends
before its tensors do is refused before anything is mapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from cplab.cachedir import replacing
from cplab.errors import UnreadableModelError
from cplab.formats import FORMATS, Format
from cplab.model import Model, Tensor
from cplab.spec import Spec

ARCHITECTURE = "qwen3-tts"

#: Spec field -> (key, how it is written). Names as in the dialect of predict-woo and qwentts.cpp.
_KEYS: dict[str, tuple[str, str]] = {
    "hidden": ("qwen3-tts.code_pred.embedding_length", "uint32"),
    "intermediate": ("qwen3-tts.code_pred.feed_forward_length", "uint32"),
    "layers": ("qwen3-tts.code_pred.block_count", "uint32"),
    "heads": ("qwen3-tts.code_pred.attention.head_count", "uint32"),
    "kv_heads": ("qwen3-tts.code_pred.attention.head_count_kv", "uint32"),
    "head_dim": ("qwen3-tts.code_pred.attention.key_length", "uint32"),
    "vocab": ("qwen3-tts.code_pred.vocab_size", "uint32"),
    "rope_theta": ("qwen3-tts.code_pred.rope.freq_base", "float32"),
    "rms_eps": ("qwen3-tts.code_pred.attention.layer_norm_rms_epsilon", "float32"),
    "groups": ("qwen3-tts.num_code_groups", "uint32"),
    "talker_hidden": ("qwen3-tts.talker.embedding_length", "uint32"),
}
_SYNTHETIC_KEY = "cplab.synthetic"

_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}

_GGML = {
    "f32": gguf.GGMLQuantizationType.F32,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "f16": gguf.GGMLQuantizationType.F16,
}
_BY_GGML: dict[Any, Format] = {kind: FORMATS[name] for name, kind in _GGML.items()}


def gguf_name(checkpoint_name: str) -> str:
    """``model.layers.0.self_attn.q_proj.weight`` -> ``code_pred.blk.0.attn_q.weight``."""
    stem, kind = checkpoint_name.rsplit(".", 1)
    parts = stem.split(".")
    if stem.startswith("model.layers."):
        return f"code_pred.blk.{parts[2]}.{_LAYER_NAMES['.'.join(parts[3:])]}.{kind}"
    if stem == "model.norm":
        return f"code_pred.output_norm.{kind}"
    if stem.startswith("model.codec_embedding."):
        return f"code_pred.codec_embd.{parts[2]}.{kind}"
    if stem.startswith("lm_head."):
        return f"code_pred.lm_head.{parts[1]}.{kind}"
    return f"code_pred.mtp_proj.{kind}"


def write(
    path: Path,
    spec: Spec,
    tensors: Iterable[Tensor],
    *,
    name: str,
    synthetic: bool = False,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Write a code predictor, tensor by tensor, to a temporary name that is renamed at the end.

    Args:
        path: where the file goes.
        spec: its dimensions; ``tensors`` must hold exactly ``spec.shapes()``, in that order.
        tensors: may be a generator; one tensor is held at a time. One-dimensional ones are stored as F32.
        name: ``general.name`` of the file.
        synthetic: mark the weights as made from a seed.
        progress: called with the bytes written since the last call.
    """
    with replacing(path) as temporary:
        writer = gguf.GGUFWriter(temporary, ARCHITECTURE)
        try:
            writer.add_name(name)
            for field, (key, kind) in _KEYS.items():
                getattr(writer, f"add_{kind}")(key, getattr(spec, field))
            if synthetic:
                writer.add_bool(_SYNTHETIC_KEY, True)
            kinds = {n: "f32" if len(shape) == 1 else "bf16" for n, shape in spec.shapes().items()}
            _declare(writer, spec, kinds)
            for wanted, tensor in zip_longest(spec.shapes(), tensors):
                if tensor is None or wanted != tensor.name:
                    given = "nothing" if tensor is None else tensor.name
                    raise UnreadableModelError(f"{path}: {wanted or 'nothing more'} is to be written next, not {given}")
                data = tensor.packed(FORMATS[kinds[tensor.name]])
                writer.write_tensor_data(data)
                if progress is not None:
                    progress(data.nbytes)
        finally:
            writer.close()


def _declare(writer: Any, spec: Spec, kinds: dict[str, str]) -> None:
    for tensor_name, shape in spec.shapes().items():
        storage = FORMATS[kinds[tensor_name]].storage
        nbytes = int(np.prod(shape)) * storage.itemsize
        writer.add_tensor_info(gguf_name(tensor_name), shape, storage, nbytes, raw_dtype=_GGML[kinds[tensor_name]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()


def read(path: Path) -> Model:
    """Read and map a file.

    Raises:
        UnreadableModelError: naming what is wrong: not GGUF, truncated, another architecture, a missing key, a
            missing or left-over tensor, a wrong shape, a type that the lab cannot read.
    """
    reader = _open(path)
    architecture = _field(reader, path, "general.architecture")
    if architecture != ARCHITECTURE:
        raise UnreadableModelError(f"{path}: architecture {architecture!r}, not a code predictor ({ARCHITECTURE!r})")
    found = {t.name: t for t in reader.tensors}
    values = {field: _number(path, key, _field(reader, path, key)) for field, (key, _) in _KEYS.items()}
    try:
        spec = Spec(**values, projected="code_pred.mtp_proj.weight" in found)
    except UnreadableModelError as error:
        raise UnreadableModelError(f"{path}: {error}") from error
    tensors: dict[str, Tensor] = {}
    missing = []
    for name, shape in spec.shapes().items():
        stored = found.pop(gguf_name(name), None)
        if stored is None:
            missing.append(gguf_name(name))
        else:
            tensors[name] = _tensor(path, name, shape, stored)
    if missing or found:
        parts = [
            f"{what} {', '.join(sorted(some))}" for what, some in (("missing", missing), ("left over", found)) if some
        ]
        raise UnreadableModelError(f"{path}: tensors {'; '.join(parts)}")
    return Model(str(path), spec, tensors, synthetic=reader.get_field(_SYNTHETIC_KEY) is not None)


def _open(path: Path) -> Any:
    try:
        with path.open("rb") as stream:
            magic = stream.read(4)
        if magic != b"GGUF":
            hint = "a git-lfs pointer" if magic == b"vers" else "not a GGUF file"
            raise UnreadableModelError(f"{path}: {hint} (it starts with {magic!r})")
        reader = gguf.GGUFReader(path)
        if reader.byte_order != "I":
            raise UnreadableModelError(f"{path}: written in the other byte order; convert it first")
        return reader
    except OSError as error:
        raise UnreadableModelError(f"{path}: {error.strerror or error}") from error
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        # The gguf package maps tensors while it opens, and shows a short file as numpy's errors.
        raise UnreadableModelError(f"{path}: damaged or cut short ({error}); copy it again") from error


def _field(reader: Any, path: Path, key: str) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise UnreadableModelError(f"{path}: metadata key {key} is missing")
    try:
        return field.contents()
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise UnreadableModelError(f"{path}: metadata key {key} is damaged ({error}); copy it again") from error


def _number(path: Path, key: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnreadableModelError(f"{path}: metadata key {key} holds {value!r}, a number is wanted")
    # A float32 key read back as float64 (9.99999997e-07) means the shortest decimal that gives the same float32.
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _tensor(path: Path, name: str, shape: tuple[int, ...], stored: Any) -> Tensor:
    kind = _BY_GGML.get(stored.tensor_type)
    if kind is None:
        known = ", ".join(k.name for k in _BY_GGML)
        raise UnreadableModelError(f"{path}: {stored.name} is {stored.tensor_type.name}; this version reads {known}")
    found = [int(n) for n in reversed(stored.shape)]
    if found != list(shape):
        raise UnreadableModelError(f"{path}: {stored.name} has shape {found}, the metadata says {list(shape)}")
    return Tensor(name, kind, stored.data.view(kind.storage).reshape(shape))
