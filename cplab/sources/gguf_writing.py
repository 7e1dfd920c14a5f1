"""Our own GGUF files, written with the names that predict-woo and qwentts.cpp gave the tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from cplab.cachedir import replacing
from cplab.errors import UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Tensor
from cplab.sources.dialects import OWN
from cplab.sources.gguf_reading import AS_STORED, SYNTHETIC_KEY
from cplab.spec import Spec

ARCHITECTURE = OWN.architecture

_GGML = {kind.name: ggml for ggml, kind in AS_STORED.items()}
_FLOATS = ("rope_theta", "rms_eps")


def gguf_name(checkpoint_name: str) -> str:
    """``model.layers.0.self_attn.q_proj.weight`` -> ``code_pred.blk.0.attn_q.weight``."""
    return next(OWN.stored_names(checkpoint_name))[0]


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
            for field, (source,) in OWN.sources.items():
                add = writer.add_float32 if field in _FLOATS else writer.add_uint32
                add(source.at, getattr(spec, field))
            if synthetic:
                writer.add_bool(SYNTHETIC_KEY, True)
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
