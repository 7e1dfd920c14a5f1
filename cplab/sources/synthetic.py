"""Models made from a seed: the real shapes, the same bits on every platform.

A value comes from an integer hash of (tensor name, index): four 16-bit parts of a 64-bit hash are summed (nearly
Gaussian), made odd (never zero), scaled by a power of two, and rounded to eight significant bits by integer steps. So
each value is one that BF16 and F16 both hold exactly, and no libm, no random generator and no rounding mode of a
platform can change it. Digests of all tensors are committed and checked when a model is made.

Scales are chosen so that the residual stream stays near unit size, logits spread over a few units as a trained
head's do, and ``hidden`` has the scale recorded from the real talker (standard deviation 6.6).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, writing_to_cache
from cplab.errors import UnknownModelError, UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Model, Tensor, values_digest
from cplab.sources import gguf
from cplab.sources.synthetic_predictable import is_keyed, keyed
from cplab.spec import PRESETS, Spec

PREFIX = "synthetic:"

#: Raise when a value's recipe changes: it is part of the cached file's name.
RECIPE = 1

_CHUNK = 1 << 16
#: Standard deviation of the hash sum before scaling, 65536 * sqrt(4 / 12) * 2.
_UNIT = 75674.0
_SHAPES = {name: name for name in PRESETS} | {"0.6b-spikes": "0.6b", "0.6b-tails": "0.6b"}
_PREDICTABLE = "-predictable"
_SHAPES |= {name + _PREDICTABLE: name for name in ("0.6b", "tiny")}

#: Powers of two that scale the odd hash sum; the standard deviation that results stands beside each.
_SCALES = {
    "self_attn.q_proj": -21,  # 0.036
    "self_attn.k_proj": -21,
    "self_attn.v_proj": -21,
    "self_attn.o_proj": -22,  # 0.018
    "mlp.gate_proj": -21,
    "mlp.up_proj": -21,
    "mlp.down_proj": -21,
    "codec_embedding": -17,  # 0.58
    "lm_head": -20,  # 0.072
    "small_to_mtp_projection.weight": -22,
    "small_to_mtp_projection.bias": -21,
    "norm": -20,  # 1 +- 0.072
}


def names() -> list[str]:
    """The names that `load` takes."""
    return [PREFIX + name for name in _SHAPES]


def spec_of(name: str) -> Spec:
    """The Spec behind ``synthetic:NAME``.

    Raises:
        UnknownModelError: there is no such name.
    """
    short = name.removeprefix(PREFIX)
    if short not in _SHAPES:
        raise UnknownModelError(f"{name}: no such seeded model; there are {', '.join(names())}")
    spec = PRESETS[_SHAPES[short]]
    # There is nothing to tell ahead of in the two codes of the tiny shape.
    return replace(spec, groups=16) if short.endswith(_PREDICTABLE) else spec


def predicts_ahead(name: str) -> bool:
    """Whether deeper codes of a seeded model can be told from the current hidden state (`synthetic_predictable`)."""
    return name.endswith(_PREDICTABLE)


def load(name: str) -> Model:
    """Map the cached file of a seeded model, making it first where it is not there (seconds, with a progress bar)."""
    spec = spec_of(name)
    path = _path(name)
    with writing_to_cache(path):
        there = path.exists()
    if there:
        try:
            model = gguf.read(path)
        except UnreadableModelError:
            path.unlink()  # a damaged cache is made again, never trusted
        else:
            return Model(name, model.spec, model.tensors, synthetic=True)
    with writing_to_cache(path):
        make(name, spec, path)
    return Model(name, spec, gguf.read(path).tensors, synthetic=True)


def make(name: str, spec: Spec, path: Path) -> None:
    """Write a seeded model and check every tensor's digest against the committed ones."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    total = sum(int(np.prod(s)) * (4 if len(s) == 1 else 2) for s in spec.shapes().values())
    columns = (TextColumn("making {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        gguf.write(
            path, spec, _checked(name, spec), name=name, synthetic=True, progress=lambda n: bar.update(task, advance=n)
        )


def tensors(name: str, spec: Spec) -> Iterator[Tensor]:
    """Every tensor of a seeded model in ``spec.shapes()`` order, BF16 matrices and F32 vectors."""
    flavour = name.removeprefix(PREFIX)
    with ThreadPoolExecutor(2) as pool:
        pending = []
        for tensor_name, shape in spec.shapes().items():
            pending.append(pool.submit(_tensor, flavour, tensor_name, shape))
            if len(pending) > 3:
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def gaussian(name: str, count: int, exponent: int, start: int = 0) -> NDArray[np.float32]:
    """``count`` values of the stream called ``name``, near-Gaussian with standard deviation ``75674 * 2**exponent``.

    Each has at most eight significant bits, so BF16 holds it exactly; for exponents from -24 F16 does too. Values
    depend on (name, index) only: ``gaussian(n, 10, e)[4:] == gaussian(n, 6, e, start=4)``.
    """
    return _round_to_bf16(_odd_sums(name, count, start).astype(np.float32) * np.float32(2.0**exponent))


def hidden_states(name: str, frames: int, width: int, start: int = 0) -> NDArray[np.float32]:
    """Talker hidden states ``[frames, width]`` at the recorded scale, std 6.6, with full float32 mantissas."""
    sums = _odd_sums(f"{name}/hidden", frames * width, start * width).astype(np.float32)
    return (sums * np.float32(6.6 / _UNIT)).reshape(frames, width)


def cb0_embeddings(name: str, frames: int, width: int, start: int = 0) -> NDArray[np.float32]:
    """Rows as of the talker's codec embedding ``[frames, width]``: BF16 values, std 0.58."""
    exponent = _SCALES["codec_embedding"]
    return gaussian(f"{name}/cb0_embed", frames * width, exponent, start * width).reshape(frames, width)


def _path(name: str) -> Path:
    return cache_dir() / "models" / f"{name.replace(':', '-')}-r{RECIPE}.gguf"


def _checked(name: str, spec: Spec) -> Iterator[Tensor]:
    digests = _digests(name)["tensors"]
    for tensor in tensors(name, spec):
        if digests.get(tensor.name) != short_digest(tensor):
            raise UnreadableModelError(
                f"{name}: {tensor.name} came out with other bits than on the machines where the digests were made; "
                "please report this machine's numpy version and CPU"
            )
        yield tensor


def _digests(name: str) -> dict[str, Any]:
    """Committed digests of a seeded model: ``{"model": ..., "tensors": {name: ...}}``."""
    every = json.loads(files("cplab.sources").joinpath("synthetic_digests.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = every.get(name, {"model": None, "tensors": {}})
    return found


def verify(model: Model) -> None:
    """Compare a seeded model's digest with the committed one; a cached file may have been damaged since it was made.

    Raises:
        UnreadableModelError: they differ; the cached file is removed, so that the next load makes it again.
    """
    wanted = _digests(model.name)["model"]
    if wanted is not None and model.digest() != wanted:
        path = _path(model.name)
        path.unlink(missing_ok=True)
        raise UnreadableModelError(f"{path}: was damaged in the cache and has been removed; run the command again")


def short_digest(tensor: Tensor) -> str:
    """Twelve hex digits of the tensor's float32 values."""
    return values_digest(tensor.f32()).hex()[:12]


def _odd_sums(name: str, count: int, start: int) -> NDArray[np.int32]:
    # splitmix64's finaliser over seed + index * golden ratio, in chunks that stay in the cache.
    seed = np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))
    out = np.empty(count, np.int32)
    low = np.uint64(0xFFFF)
    for at in range(0, count, _CHUNK):
        size = min(_CHUNK, count - at)
        z = np.arange(start + at, start + at + size, dtype=np.uint64)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z += seed
        z ^= z >> np.uint64(30)
        z *= np.uint64(0xBF58476D1CE4E5B9)
        z ^= z >> np.uint64(27)
        z *= np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        total = z & low
        for shift in (16, 32, 48):
            total += (z >> np.uint64(shift)) & low
        out[at : at + size] = total.astype(np.int32) * 2 - (4 * 65535 - 1)
    return out


def _round_to_bf16(values: NDArray[np.float32]) -> NDArray[np.float32]:
    bf16 = FORMATS["bf16"]
    return bf16.unpack(bf16.pack(values))


def _tensor(flavour: str, name: str, shape: tuple[int, ...]) -> Tensor:
    base = flavour.partition("-")[0] if flavour in _SHAPES else flavour
    kind = FORMATS["f32" if len(shape) == 1 else "bf16"]
    if flavour.endswith(_PREDICTABLE) and is_keyed(name):
        return Tensor(name, kind, kind.pack(keyed(flavour, name, shape, gaussian, _order)))
    count = int(np.prod(shape))
    scale = next(e for part, e in _SCALES.items() if part in name)
    values = gaussian(f"{base}/{name}", count, scale).reshape(shape)
    if len(shape) == 1 and name.endswith("weight"):
        values = _round_to_bf16(values + np.float32(1))
    if flavour == "0.6b-spikes":
        values = _with_spikes(name, values)
    elif flavour == "0.6b-tails" and len(shape) == 2:
        values = _with_tails(f"{flavour}/{name}", values)
    return Tensor(name, kind, kind.pack(values))


def _order(name: str, count: int) -> NDArray[np.int64]:
    """A permutation of ``count`` numbers, drawn from the stream called ``name``."""
    return np.argsort(_odd_sums(name, count, 0), kind="stable")


def _with_spikes(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """FFN channels 5, 6, ... 12 of every layer reach some 1e5, beyond F16's 65504, as in the real 0.6B.

    Their gate and up rows grow by 2**9; their down columns shrink to multiples of 2**-21 near 3e-5, so that what they
    add to the residual stream stays near unit size.
    """
    if name.endswith(("mlp.gate_proj.weight", "mlp.up_proj.weight")):
        values[5:13] *= np.float32(512)
    elif name.endswith("mlp.down_proj.weight"):
        step = np.float32(2.0**-21)
        values[:, 5:13] = np.trunc(values[:, 5:13] / np.float32(2.0**-11)) * step + step
    return values


def _with_tails(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What trained weights look like to a packer: exact zeros, the whole BF16 exponent range, outlier rows."""
    bits = values.view(np.uint32).reshape(-1)
    draw = _odd_sums(name + "/tails", bits.size, 0).view(np.uint32) * np.uint32(0x9E3779B1)
    tiny = (draw >> np.uint32(24)) == 0  # one in 256: the exponent is drawn from all those below the value's own
    exponent = (bits[tiny] >> np.uint32(23)) & np.uint32(0xFF)
    drawn = ((draw[tiny] >> np.uint32(8)) & np.uint32(0xFF)) * exponent // np.uint32(256)
    bits[tiny] = (bits[tiny] & np.uint32(0x807F0000)) | (drawn << np.uint32(23))
    bits[(draw >> np.uint32(23)) == np.uint32(3)] = 0  # one in 512 is exactly zero
    if "_proj." in name:  # heads are left alone: a few loud rows would win every argmax
        for row in range(zlib.crc32(name.encode()) % 128, len(values), 128):
            values[row] *= np.float32(16)
    return values
