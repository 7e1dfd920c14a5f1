"""Kazeia's layout: the layers in one file, heads and codec tables in files beside it.

The Kazeia engine's own files are not published, so these are the names that the lab takes. For ``cp_f16.gguf``, with
NAME either ``cp_f16`` or ``cp``:

- heads: ``NAME_heads.gguf`` (``code_pred.lm_head.{0-14}.weight``) or ``NAME_heads.npy`` ``[15, 2048, 1024]``;
- tables: ``NAME_codec_embd.gguf`` (``code_pred.codec_embd.{0-14}.weight``) or ``NAME_codec_embd.npy``
  ``[15, 2048, talker width]``;
- as `cplab.export` writes them, ``cp_heads_f16.gguf`` and ``cp_codec_embd_f16.gguf``;
- 1.7B only: ``code_pred.mtp_proj.weight`` and ``.bias`` in either GGUF, or ``NAME_mtp_proj_weight.npy`` and
  ``NAME_mtp_proj_bias.npy``.

A .npy holds float32 or float16, rows in order. Keys that the layers' file lacks (``qwen3-tts.num_code_groups``) may
stand in a GGUF beside it.
"""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy as np

from cplab.errors import UnreadableModelError
from cplab.sources.gguf_header import Header, StoredTensor, read_header

#: End of a side file's name -> name of the tensor in it, where it is a .npy.
_NPY_TENSORS = {
    "heads": "heads.weight",
    "codec_embd": "codec_embd.weight",
    "mtp_proj_weight": "mtp_proj.weight",
    "mtp_proj_bias": "mtp_proj.bias",
}
_WANTED = ("heads", "codec_embd")
_NPY_KINDS = {"<f4": gguf.GGMLQuantizationType.F32, "<f2": gguf.GGMLQuantizationType.F16}


def _stems(path: Path, part: str) -> list[str]:
    """Names of a side file without their end: ``cp_f16_heads``, ``cp_heads`` and ``cp_heads_f16``."""
    kind = re.search(r"[_.-](f16|f32|bf16|q\d\w*)$", path.stem, flags=re.IGNORECASE)
    if kind is None:
        return [f"{path.stem}_{part}"]
    short = path.stem[: kind.start()]
    return [f"{path.stem}_{part}", f"{short}_{part}", f"{short}_{part}{kind[0]}"]


def beside(path: Path, problems: list[str]) -> list[Header]:
    """Heads of the files beside a Kazeia layers' file; what is wrong with one is added to ``problems``."""
    found = []
    for part, tensor in _NPY_TENSORS.items():
        options = [path.with_name(stem + end) for stem in _stems(path, part) for end in (".gguf", ".npy")]
        there = [option for option in options if option.exists()]
        if len(there) > 1:
            problems.append(f"{' and '.join(p.name for p in there)} are both there; one is wanted")
        if not there and part in _WANTED:
            names = " or ".join(_stems(path, part))
            problems.append(f"layers alone, and no {names} (.gguf or .npy) beside them; a language model is none")
        if there:
            try:
                found.append(read_header(there[0]) if there[0].suffix == ".gguf" else _npy_header(there[0], tensor))
            except UnreadableModelError as error:
                problems.append(str(error))
    return found


def _npy_header(path: Path, tensor: str) -> Header:
    try:
        with path.open("rb") as stream:
            version = np.lib.format.read_magic(stream)
            reading = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, column_order, dtype = reading(stream)
            start = stream.tell()
    except (OSError, ValueError) as error:
        raise UnreadableModelError(f"{path}: no .npy that can be read ({error})") from error
    kind = _NPY_KINDS.get(dtype.str)
    if kind is None or column_order or not shape:
        raise UnreadableModelError(f"{path}: float32 or float16 rows are wanted, not {dtype} {list(shape)}")
    nbytes = int(np.prod(shape)) * dtype.itemsize
    if start + nbytes > path.stat().st_size:
        raise UnreadableModelError(f"{path}: cut short; copy it again")
    return Header(path, {}, {tensor: StoredTensor(path, tensor, kind, tuple(shape), start, nbytes)})
