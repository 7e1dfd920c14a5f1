"""GGUF files, written tensor by tensor; our own with the names that predict-woo and qwentts.cpp gave the tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gguf
from numpy.typing import NDArray

from cplab.cachedir import replacing
from cplab.errors import UnpackableError, UnreadableModelError
from cplab.formats import FORMATS, Format
from cplab.model import Tensor
from cplab.sources.dialects import OWN
from cplab.sources.gguf_reading import AS_STORED, SYNTHETIC_KEY
from cplab.spec import Spec

ARCHITECTURE = OWN.architecture

_GGML = {kind.name: ggml for ggml, kind in AS_STORED.items()}
_FLOATS = ("rope_theta", "rms_eps")

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Declared:
    """A tensor as the file's head announces it: its name there, its shape (rows first), and how it is stored."""

    name: str
    shape: tuple[int, ...]
    format: Format

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return math.prod(self.format.stored_shape(self.shape)) * self.format.storage.itemsize


def gguf_name(checkpoint_name: str) -> str:
    """``model.layers.0.self_attn.q_proj.weight`` -> ``code_pred.blk.0.attn_q.weight``."""
    return next(OWN.stored_names(checkpoint_name))[0]


def spec_keys(spec: Spec, fields: Iterable[str] = tuple(OWN.sources)) -> dict[str, int | float]:
    """Metadata of our own files that says a spec, or some fields of it."""
    keys = {field: OWN.sources[field][0].at for field in fields}
    return {key: float(getattr(spec, f)) if f in _FLOATS else getattr(spec, f) for f, key in keys.items()}


def stored_as(tensor: str, shape: tuple[int, ...], matrices: Format, own: Format) -> Format:
    """The format in which a tensor is written.

    Vectors (norms, biases) are F32 in every engine's files. Tables of embeddings are not quantised, since every code
    spoken so far is in their sums (mlx-audio#398): where ``matrices`` is a quantised format they keep their own.

    Args:
        tensor: its name in the checkpoint.
        shape: its shape.
        matrices: the format that was asked for.
        own: the format that it has.

    Raises:
        UnpackableError: rows that are not made of the format's blocks.
    """
    if len(shape) == 1:
        return FORMATS["f32"]
    kind = own if matrices.blocks is not None and "embedding" in tensor else matrices
    try:
        kind.stored_shape(shape)
    except UnpackableError as error:
        raise type(error)(f"{tensor}: {error}") from error
    return kind


def write(
    path: Path,
    spec: Spec,
    tensors: Iterable[Tensor],
    *,
    name: str,
    synthetic: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write a code predictor, tensor by tensor, to a temporary name that is renamed at the end.

    Args:
        path: where the file goes.
        spec: its dimensions; ``tensors`` must hold exactly ``spec.shapes()``, in that order.
        tensors: may be a generator; one tensor is held at a time. Vectors are stored as F32, all others as BF16.
        name: ``general.name`` of the file.
        synthetic: mark the weights as made from a seed.
        progress: called with the bytes written since the last call.
    """
    bf16 = FORMATS["bf16"]
    kinds = {n: stored_as(n, shape, bf16, bf16) for n, shape in spec.shapes().items()}
    marks = {SYNTHETIC_KEY: True} if synthetic else {}
    declared = [Declared(gguf_name(n), shape, kinds[n]) for n, shape in spec.shapes().items()]

    def arrays() -> Iterator[NDArray[Any]]:
        for wanted, tensor in zip_longest(spec.shapes(), tensors):
            if tensor is None or wanted != tensor.name:
                given = "nothing" if tensor is None else tensor.name
                raise UnreadableModelError(f"{path}: {wanted or 'nothing more'} is to be written next, not {given}")
            yield tensor.packed(kinds[tensor.name])

    write_tensors(path, ARCHITECTURE, {"general.name": name, **spec_keys(spec), **marks}, declared, arrays(), progress)


def write_tensors(
    path: Path,
    architecture: str,
    keys: Mapping[str, str | bool | int | float],
    declared: Sequence[Declared],
    arrays: Iterable[NDArray[Any]],
    progress: Progress | None = None,
) -> None:
    """Write any GGUF file to a temporary name that is renamed at the end.

    Args:
        path: where the file goes.
        architecture: ``general.architecture``.
        keys: the other metadata; integers are written as uint32, floats as float32.
        declared: every tensor, in order.
        arrays: their data in the same order, in each format's storage type; may be a generator.
        progress: called with the bytes written since the last call.
    """
    with replacing(path) as temporary:
        writer = gguf.GGUFWriter(temporary, architecture)
        try:
            for key, value in keys.items():
                _add(writer, key, value)
            for tensor in declared:
                storage, kind = tensor.format.storage, _GGML[tensor.format.name]
                writer.add_tensor_info(tensor.name, tensor.shape, storage, tensor.nbytes, raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for data in arrays:
                writer.write_tensor_data(data)
                if progress is not None:
                    progress(data.nbytes)
        finally:
            writer.close()


def _add(writer: Any, key: str, value: str | bool | int | float) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    else:
        writer.add_float32(key, value)
