"""Golden files: inputs, codes and digests of logits, with where they came from.

A golden belongs to weights and an arithmetic, not to a file: it carries the digest of the model's values, and is
refused for any other model or rounding law. Digests come from the oracle only. Where the codes also come from the
official PyTorch class (``reference: torch``), only frames are kept whose every top-1 margin is at least 100 times the
largest difference between PyTorch's and the oracle's logits, so that another engine's rounding cannot change a code.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, replacing
from cplab.errors import GoldenError
from cplab.model import Model

SCHEMA = "cplab.golden/1"

#: Inputs are scaled by this for the frame that lives among subnormals.
SUBNORMAL_SCALE = np.float32(2.0**-130)

_ARRAYS = ("hidden", "cb0_embed", "codes", "digests", "margins", "forced", "forced_digests", "subnormal_digests")


@dataclass(frozen=True, slots=True)
class Golden:
    """What a model says, for F frames.

    Attributes:
        hidden: ``[F, talker_hidden]`` f32.
        cb0_embed: ``[F, talker_hidden]`` f32.
        codes: ``[F, groups-1]`` int32, free-running greedy.
        digests: ``[F, groups-1, 16]`` uint8 of the free-running logits rows.
        margins: ``[F, groups-1]`` f32, distance from the largest logit to the second.
        forced: ``[F, groups-1]`` int32 codes that are not the model's own (the next frame's), for teacher forcing.
        forced_digests: digests of the logits when ``forced`` is fed back.
        subnormal_digests: ``[groups-1, 16]`` for frame 0 with inputs scaled by 2**-130, free-running.
        model: name of the model it was made from.
        digest: digest of the model's values.
        provenance: how it was made: reference, versions, command, margins.
        arithmetic: id of the rounding law in which the model said it.
    """

    hidden: NDArray[np.float32]
    cb0_embed: NDArray[np.float32]
    codes: NDArray[np.int32]
    digests: NDArray[np.uint8]
    margins: NDArray[np.float32]
    forced: NDArray[np.int32]
    forced_digests: NDArray[np.uint8]
    subnormal_digests: NDArray[np.uint8]
    model: str
    digest: str
    provenance: dict[str, Any] = field(default_factory=dict)
    arithmetic: str = "f32"

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def distinct_frames(self) -> int:
        """How many frames have codes of their own; a golden that repeats itself checks little."""
        return len(np.unique(self.codes, axis=0))

    def save(self, path: Path) -> None:
        """Write a compressed npz, under a temporary name first; the same contents give the same bytes."""
        about = {"schema": SCHEMA, "model": self.model, "digest": self.digest, "provenance": self.provenance}
        if self.arithmetic != "f32":  # so that the others are the same bytes as ever
            about["arithmetic"] = self.arithmetic
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["about"] = np.frombuffer(json.dumps(about, sort_keys=True, allow_nan=False).encode(), np.uint8)
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    def require(self, model: Model, arithmetic: str = "f32") -> None:
        """Raise GoldenError unless this golden was made from these weights in this arithmetic."""
        if self.arithmetic != arithmetic:
            raise GoldenError(
                f"the golden is of {self.model} in arithmetic {self.arithmetic}, not {arithmetic}; "
                f"make its own with: python -m cplab golden --arithmetic {arithmetic} --model ..."
            )
        if self.digest != model.digest():
            raise GoldenError(
                f"the golden was made from {self.model} (weights {self.digest}), "
                f"{model.name} has weights {model.digest()}; make its own with: python -m cplab golden --model ..."
            )
        spec = model.spec
        if self.codes.shape[1] != spec.passes or self.hidden.shape[1] != spec.talker_hidden:
            raise GoldenError(f"the golden's {list(self.codes.shape)} codes do not fit {model.name}; make it again")
        if max(self.codes.max(), self.forced.max()) >= spec.vocab:
            raise GoldenError(f"the golden holds codes outside 0..{spec.vocab - 1}; make it again")


def load_golden(path: Path) -> Golden:
    """Read a golden file.

    Raises:
        GoldenError: missing, damaged, of another schema, or with shapes that do not fit together.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            about = json.loads(bytes(stored["about"]))
            arrays = {name: stored[name] for name in _ARRAYS}
    except OSError as error:
        raise GoldenError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        raise GoldenError(f"{path}: not a golden file or damaged ({error}); make it again") from error
    if not isinstance(about, dict) or about.get("schema") != SCHEMA:
        raise GoldenError(f"{path}: not a golden of schema {SCHEMA!r}, which this version reads")
    wrong = _misfit(about, arrays)
    if wrong:
        raise GoldenError(f"{path}: {wrong}; make it again")
    for array in arrays.values():
        array.flags.writeable = False
    told = {key: about[key] for key in ("model", "digest", "provenance")}
    return Golden(**arrays, **told, arithmetic=about.get("arithmetic", "f32"))


def _misfit(about: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> str:
    """What does not fit together in a golden file, or ""."""
    if not all(
        isinstance(about.get(key), kind) for key, kind in (("model", str), ("digest", str), ("provenance", dict))
    ):
        return "model, digest or provenance is missing"
    if not isinstance(about.get("arithmetic", "f32"), str):
        return "arithmetic is no name"
    codes = arrays["codes"]
    if codes.ndim != 2 or len(codes) < 2 or codes.shape[1] < 1:
        return f"codes have shape {list(codes.shape)}, at least two frames are wanted"
    frames, passes = codes.shape
    width = arrays["hidden"].shape[-1] if arrays["hidden"].ndim else 0
    wanted: dict[str, tuple[type, tuple[int, ...]]] = {
        "hidden": (np.float32, (frames, width)),
        "cb0_embed": (np.float32, (frames, width)),
        "codes": (np.int32, (frames, passes)),
        "digests": (np.uint8, (frames, passes, 16)),
        "margins": (np.float32, (frames, passes)),
        "forced": (np.int32, (frames, passes)),
        "forced_digests": (np.uint8, (frames, passes, 16)),
        "subnormal_digests": (np.uint8, (passes, 16)),
    }
    for name, (dtype, shape) in wanted.items():
        array = arrays[name]
        if array.dtype != dtype or array.shape != shape:
            return f"{name} is {array.dtype}{list(array.shape)}, {np.dtype(dtype)}{list(shape)} is wanted"
        if array.dtype == np.float32 and not np.isfinite(array).all():
            return f"{name} holds NaN or infinite values"
    if min(arrays["codes"].min(), arrays["forced"].min()) < 0:
        return "negative codes"
    return ""


def row_digests(logits: NDArray[np.float32]) -> NDArray[np.uint8]:
    """``[..., vocab]`` f32 -> ``[..., 16]`` uint8: the first half of each row's SHA-256, little-endian."""
    rows = np.ascontiguousarray(logits, "<f4").reshape(-1, logits.shape[-1])
    digests = [np.frombuffer(hashlib.sha256(row.data).digest()[:16], np.uint8) for row in rows]
    return np.stack(digests).reshape(*logits.shape[:-1], 16)


def committed_goldens() -> Iterator[Path]:
    """The golden files that come with the lab: ``tests/golden`` in a checkout, package data in an installation."""
    checkout = Path(__file__).resolve().parent.parent / "tests" / "golden"
    installed = Path(str(files("cplab"))) / "golden_files"
    for folder in (checkout, installed):
        yield from sorted(folder.glob("*.npz"))


def find_golden(model: Model, arithmetic: str = "f32") -> Golden | None:
    """The committed or cached golden of these weights in this arithmetic, or None."""
    path = find_golden_path(model, arithmetic)
    return load_golden(path) if path is not None else None


def find_golden_path(model: Model, arithmetic: str = "f32") -> Path | None:
    """Where `find_golden` finds it. A damaged file in the cache counts as none, a damaged committed one is an error."""
    for path in committed_goldens():
        if committed_stem(model.name) == path.stem and _is_of(load_golden(path), model, arithmetic):
            return path
    cached = cached_path(model, arithmetic)
    if cached.exists():
        with contextlib.suppress(GoldenError):
            if _is_of(load_golden(cached), model, arithmetic):
                return cached
    return None


def _is_of(golden: Golden, model: Model, arithmetic: str) -> bool:
    return golden.arithmetic == arithmetic and golden.digest == model.digest()


def committed_stem(model_name: str) -> str:
    """``synthetic:0.6b rounded to q8_0`` -> ``synthetic-0.6b.q8_0``, the name of a committed golden without .npz."""
    return model_name.replace(" rounded to ", ".").replace(":", "-")


def cached_path(model: Model, arithmetic: str = "f32") -> Path:
    """Where a golden made on this machine is kept."""
    law = "" if arithmetic == "f32" else f".{arithmetic}"
    return cache_dir() / "golden" / f"{model.digest()}{law}.npz"
