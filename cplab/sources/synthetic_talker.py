"""Talkers made from a seed: the real shape, the same bits on every platform, for llama.cpp.

Values come from the hash of `cplab.sources.synthetic`, as BF16 numbers; matrices are then packed in Q8_0, which is what
a program would run, or in the format that the name ends with: ``synthetic-talker:0.6b:bf16``. The table of CB0 stays
BF16. Hidden states have the scale that was recorded from the real talker (standard deviation 6.6), from the final norm.

The digest of all values is committed and checked when a file is made, that of the file's bytes when it is used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, writing_to_cache
from cplab.errors import UnknownModelError, UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Tensor, values_digest
from cplab.sources import gguf_writing as writing
from cplab.sources.synthetic import gaussian
from cplab.sources.talker import Qwen3, qwen3_name, talker_shapes
from cplab.sources.talker_file import ARCHITECTURE, SPECIAL_CODES
from cplab.spec import PRESETS

PREFIX = "synthetic-talker:"
#: Raise when a value's recipe changes: it is part of the cached file's name.
RECIPE = 1

_KINDS = ("q8_0", "bf16", "f16", "f32", "q4_0")
_CONTEXT = 32768
_EPS = 1e-6


def _shaped_like(preset: str, layers: int, heads: int, kv_heads: int) -> Qwen3:
    """A talker beside one of the seeded code predictors: its width, its theta, and its codes with the special ones."""
    spec = PRESETS[preset]
    return Qwen3(
        hidden=spec.talker_hidden,
        intermediate=3 * spec.talker_hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=spec.head_dim,
        vocab=spec.vocab + SPECIAL_CODES,
        context=_CONTEXT,
        rope_theta=spec.rope_theta,
        rms_eps=_EPS,
    )


#: The published 0.6B, and one for `synthetic:tiny`.
DIMENSIONS = {"0.6b": _shaped_like("0.6b", 28, 16, 8), "tiny": _shaped_like("tiny", 2, 4, 2)}

#: Powers of two that scale the hash sum; the standard deviation that results stands beside each.
_SCALES = {
    "self_attn.q_proj": -21,  # 0.036
    "self_attn.k_proj": -21,
    "self_attn.v_proj": -21,
    "self_attn.o_proj": -22,  # 0.018
    "mlp.": -21,
    "codec_embedding": -17,  # 0.58
    "codec_head": -22,  # 0.018, times the final norm's 6.6
    "norm": -20,  # 1 +- 0.072
}
_FINAL_NORM = np.float32(6.6)


def names() -> list[str]:
    """The names that `file_of` takes."""
    return [PREFIX + name for name in DIMENSIONS]


def name_of_width(width: int) -> str:
    """The seeded talker whose hidden states are that wide, or ""."""
    return next((PREFIX + name for name, dims in DIMENSIONS.items() if dims.hidden == width), "")


def is_made(name: str) -> bool:
    """Whether the file of a seeded talker lies in the cache; its bytes are not looked at.

    Raises:
        UnknownModelError: there is no such name.
    """
    return _path_of(*_parts(name)).exists()


def file_of(name: str) -> Path:
    """The file of a seeded talker, made first where it is not there or was damaged (with a progress bar).

    Raises:
        UnknownModelError: there is no such name.
        UnreadableModelError: it came out with other bits than where its digests were made.
        CacheError: the cache cannot be written.
    """
    short, kind = _parts(name)
    path = _path_of(short, kind)
    wanted = _digests(PREFIX + short)["files"].get(kind)
    with writing_to_cache(path):
        there = path.exists()
    if there and wanted not in (None, file_digest(path)):
        path.unlink()  # a damaged cache is made again, never trusted
        there = False
    if not there:
        with writing_to_cache(path):
            make(short, kind, path)
    return path


def _parts(name: str) -> tuple[str, str]:
    short, _, kind = name.removeprefix(PREFIX).partition(":")
    kind = kind or _KINDS[0]
    if short not in DIMENSIONS or kind not in _KINDS:
        raise UnknownModelError(
            f"{name}: no such seeded talker; there are {', '.join(names())}, {_KINDS[0].upper()} unless "
            f"one of {', '.join(f':{k}' for k in _KINDS[1:])} follows"
        )
    return short, kind


def _path_of(short: str, kind: str) -> Path:
    return cache_dir() / "models" / f"{PREFIX.rstrip(':')}-{short}-{kind}-r{RECIPE}.gguf"


def make(short: str, kind: str, path: Path) -> None:
    """Write a seeded talker.

    Raises:
        UnreadableModelError: its values are not those of the committed digest.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    dims, matrices = DIMENSIONS[short], FORMATS[kind]
    bf16 = FORMATS["bf16"]
    declared = [
        writing.Declared(qwen3_name(name), shape, writing.stored_as(name, shape, matrices, bf16))
        for name, shape in talker_shapes(dims).items()
    ]
    keys = {"general.name": f"{PREFIX}{short}", **dims.keys()}
    total = sum(tensor.nbytes for tensor in declared)
    found = hashlib.sha256()

    def arrays() -> Iterator[NDArray[Any]]:
        for tensor, wanted in zip(tensors(short), declared, strict=True):
            values = tensor.f32()
            found.update(tensor.name.encode() + b"\0" + values_digest(values))
            yield tensor.packed_values(wanted.format, values)
        expected = _digests(PREFIX + short)["values"]
        if expected not in (None, found.hexdigest()[:16]):
            raise UnreadableModelError(
                f"{PREFIX}{short}: its values came out with other bits than on the machines where the digest was "
                "made; please report this machine's numpy version and CPU"
            )

    columns = (TextColumn("making {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{PREFIX}{short}", total=total)
        writing.write_tensors(
            path, ARCHITECTURE, keys, declared, arrays(), lambda count: bar.update(task, advance=count)
        )


def tensors(short: str) -> Iterator[Tensor]:
    """Every tensor of a seeded talker in the order of `talker_shapes`, BF16 matrices and F32 vectors."""
    with ThreadPoolExecutor(2) as pool:
        pending = []
        for name, shape in talker_shapes(DIMENSIONS[short]).items():
            pending.append(pool.submit(_tensor, short, name, shape))
            if len(pending) > 3:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def file_digest(path: Path) -> str:
    """Sixteen hex digits over the bytes of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:16]


def _tensor(short: str, name: str, shape: tuple[int, ...]) -> Tensor:
    scale = next(exponent for part, exponent in _SCALES.items() if part in name)
    bf16, f32 = FORMATS["bf16"], FORMATS["f32"]
    values = gaussian(f"talker/{short}/{name}", int(np.prod(shape)), scale).reshape(shape)
    if len(shape) > 1:
        return Tensor(name, bf16, bf16.pack(values))
    values = values + np.float32(1)
    if name == "talker.model.norm.weight":
        values = values * _FINAL_NORM
    return Tensor(name, f32, f32.pack(bf16.unpack(bf16.pack(values))))


def _digests(name: str) -> dict[str, Any]:
    """Committed digests: ``{"values": ..., "files": {kind: ...}}``."""
    every = json.loads(files("cplab.sources").joinpath("synthetic_talker_digests.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = every.get(name, {"values": None, "files": {}})
    return found
