"""The code predictor as llama.cpp loads it: a GGUF of architecture ``qwen3``, derived once into the cache.

It holds the layers and the final norm. Embeddings go in from outside and hidden states come out, so that the table
and head that llama.cpp insists on are a few zero rows of its own (``token_embd``, which serves as head too): the
fifteen real tables and heads stay with the lab. Weights are quantised by the `gguf` package.
"""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, replacing, writing_to_cache
from cplab.errors import BadInputError
from cplab.model import Model, Tensor
from cplab.sources.dialects import KAZEIA
from cplab.sources.talker import Qwen3

#: Part of the file's name: a change of what is written gets a new one.
_VERSION = 1
#: Rows of the stand-in vocabulary.
_VOCAB = 32
#: Least context that is announced, so that llama.cpp has nothing to warn about.
_CONTEXT = 256


def derived_path(model: Model, kind: str) -> Path:
    """Where the file of a model's weights in a type is kept."""
    return cache_dir() / "llama" / f"{model.digest()}-{kind}-{_VERSION}.gguf"


def derived_file(model: Model, kind: str) -> Path:
    """The file of a model's layers in a type: ``f32``, ``f16``, ``bf16``, ``q8_0`` or ``q4_0``; written if need be.

    Raises:
        BadInputError: a matrix whose rows are no whole blocks of the type.
        CacheError: the cache cannot be written.
    """
    path = derived_path(model, kind)
    if not path.exists():
        with writing_to_cache(path), replacing(path) as temporary:
            _write(temporary, model, gguf.GGMLQuantizationType[kind.upper()])
    return path


def layer_bytes(model: Model, kind: str) -> int:
    """Bytes of the layers' matrices in a type: what one pass streams of the file."""
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]]
    count = sum(int(np.prod(t.shape)) for t in _layers(model) if len(t.shape) == 2)
    return count // int(block) * int(size)


def _layers(model: Model) -> list[Tensor]:
    return [tensor for name, tensor in model.tensors.items() if name.startswith(("model.layers.", "model.norm."))]


def _write(path: Path, model: Model, kind: gguf.GGMLQuantizationType) -> None:
    writer = gguf.GGUFWriter(path, "qwen3")
    try:
        for key, value in _dimensions(model).keys().items():
            if isinstance(value, str):
                writer.add_string(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value)
            else:
                writer.add_float32(key, value)
        stand_in = np.zeros((_VOCAB, model.spec.hidden), np.float32)
        writer.add_tensor("token_embd.weight", _quantised(stand_in, kind, "token_embd"), raw_dtype=kind)
        for tensor in _layers(model):
            name = next(KAZEIA.stored_names(tensor.name))[0]
            if len(tensor.shape) == 1:
                writer.add_tensor(name, tensor.f32())
            else:
                writer.add_tensor(name, _quantised(tensor.f32(), kind, tensor.name), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _quantised(values: NDArray[np.float32], kind: gguf.GGMLQuantizationType, name: str) -> NDArray[np.generic]:
    try:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            data: NDArray[np.generic] = gguf.quants.quantize(values, kind)
    except gguf.quants.QuantError as error:
        raise BadInputError(f"{name}: {list(values.shape)} cannot be held as {kind.name}: {error}") from error
    return data


def _dimensions(model: Model) -> Qwen3:
    spec = model.spec
    return Qwen3(
        hidden=spec.hidden,
        intermediate=spec.intermediate,
        layers=spec.layers,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        vocab=_VOCAB,
        context=max(_CONTEXT, spec.positions),
        rope_theta=spec.rope_theta,
        rms_eps=spec.rms_eps,
    )
