"""Recorded inputs of the code predictor: hidden states and codes in .npy files, a talker's prompt in a .npz file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.sources.checkpoint import Checkpoint
from cplab.spec import Spec

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a talker is fed before its first frame, and what comes with each frame after it.

    Attributes:
        prefill: embeddings, ``[T, talker_hidden]`` f32, T at least 2.
        trailing: text embeddings that are added to the inputs after frame 0, 1, ..., ``[L, talker_hidden]`` f32, or
            None for no text left.
        tts_pad: what is added once ``trailing`` is used up, ``[talker_hidden]`` f32; None for the checkpoint's own.
    """

    prefill: Float32
    trailing: Float32 | None = None
    tts_pad: Float32 | None = None


def read_hidden(path: Path, width: int) -> tuple[Float32, str]:
    """A talker's hidden states after its final norm, and what was done to them.

    Args:
        path: a .npy, ``[F, talker_hidden]`` of float32, float16 or float64.
        width: the model's ``talker_hidden``.

    Returns:
        ``[F, talker_hidden]`` f32, and a word such as ``float64 rounded to float32``, or "".

    Raises:
        BadInputError: no such file, no numbers, another width, no frames, NaN or infinite values.
    """
    stored = read_npy(path)
    if not np.issubdtype(stored.dtype, np.floating) or stored.ndim != 2 or stored.shape[1] != width or not len(stored):
        raise BadInputError(
            f"{path}: {stored.dtype} {list(stored.shape)}; hidden states are float32 [frames, {width}] for this model"
        )
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(stored, np.float32)
    _require_finite(path, "hidden states", values)
    if stored.dtype == np.float32:
        return values, ""
    done = "widened" if stored.dtype.itemsize < 4 else "rounded"
    return values, f"{stored.dtype.name} {done} to float32"


def read_cb0(path: Path, checkpoint: Checkpoint) -> Float32:
    """The talker's embeddings of recorded CB0 codes.

    Args:
        path: a .npy of integers, ``[F]`` or ``[F, groups]`` with CB0 first.
        checkpoint: whose talker's ``codec_embedding`` the codes are looked up in.

    Returns:
        ``[F, talker_hidden]`` f32.

    Raises:
        BadInputError: no such file, other numbers or shapes, a code that the talker does not have.
        UnreadableModelError: the checkpoint has no such table.
    """
    codes = read_npy(path)
    groups = checkpoint.talker.whole("num_code_groups")
    if not np.issubdtype(codes.dtype, np.integer) or codes.shape[1:] not in ((), (groups,)) or not codes.size:
        raise BadInputError(
            f"{path}: {codes.dtype} {list(codes.shape)}; CB0 codes are integers [frames] or [frames, {groups}]"
        )
    cb0 = codes if codes.ndim == 1 else codes[:, 0]
    table = codec_embedding(checkpoint)
    if cb0.min() < 0 or cb0.max() >= len(table):
        raise BadInputError(f"{path}: CB0 codes {cb0.min()}..{cb0.max()}; the talker has 0..{len(table) - 1}")
    embedded: Float32 = table[cb0]
    return embedded


def read_codes(path: Path, spec: Spec, talker_vocab: int) -> Int32:
    """Whole frames of codes, CB0 first, ``[F, groups]`` int32.

    Args:
        path: a .npy of integers.
        spec: of the code predictor.
        talker_vocab: codes that CB0 may be.

    Raises:
        BadInputError: no such file, no integers, another shape, codes that are in no table.
    """
    codes = read_npy(path)
    if not np.issubdtype(codes.dtype, np.integer) or codes.ndim != 2 or codes.shape[1] != spec.groups or not len(codes):
        raise BadInputError(f"{path}: {codes.dtype} {list(codes.shape)}; codes are integers [frames, {spec.groups}]")
    highest = np.array([talker_vocab] + [spec.vocab] * spec.passes)
    if (codes < 0).any() or (codes >= highest).any():
        raise BadInputError(f"{path}: codes outside their tables ({talker_vocab} for CB0, {spec.vocab} for the others)")
    return codes.astype(np.int32)


def codec_embedding(checkpoint: Checkpoint) -> Float32:
    """The talker's table of CB0, ``[vocab, talker_hidden]`` f32.

    Raises:
        UnreadableModelError: the checkpoint has none of that shape.
    """
    name = "talker.model.codec_embedding.weight"
    shape = (checkpoint.talker.whole("vocab_size"), checkpoint.talker.whole("hidden_size"))
    return checkpoint.taken({name: shape}, [])[name].f32()


def read_prompt(path: Path, width: int) -> Prompt:
    """A prompt from a .npz with ``prefill`` and, optionally, ``trailing`` and ``tts_pad``; a talker dump is one.

    Args:
        path: where it lies.
        width: the model's ``talker_hidden``.

    Raises:
        BadInputError: no such file or array, other types or shapes than `Prompt` says, NaN or infinite values.
    """
    with _loaded(path, ".npz") as stored:
        if isinstance(stored, np.ndarray):
            raise BadInputError(f"{path}: one array; a .npz with prefill [T, {width}] is wanted")
        with stored:
            arrays = {name: stored[name] for name in ("prefill", "trailing", "tts_pad") if name in stored}
    if "prefill" not in arrays:
        raise BadInputError(f"{path}: holds no array called prefill; float32 [T, {width}] is wanted")
    for name, array in arrays.items():
        wanted = "[{}]" if name == "tts_pad" else "[T, {}]"
        right = array.dtype == np.float32 and array.ndim == wanted.count(",") + 1 and array.shape[-1] == width
        if not right:
            raise BadInputError(
                f"{path}: {name} is {array.dtype} {list(array.shape)}, float32 {wanted.format(width)} is wanted"
            )
        _require_finite(path, name, array)
    if len(arrays["prefill"]) < 2:
        raise BadInputError(f"{path}: prefill has {len(arrays['prefill'])} positions; at least 2 are wanted")
    return Prompt(arrays["prefill"], arrays.get("trailing"), arrays.get("tts_pad"))


def read_npy(path: Path) -> NDArray[Any]:
    """The one array of a .npy.

    Raises:
        BadInputError: no such file, a damaged one, or one of several arrays.
    """
    with _loaded(path, ".npy") as stored:
        if not isinstance(stored, np.ndarray):
            stored.close()
            raise BadInputError(f"{path}: several arrays; a .npy with one is wanted")
        return stored


@contextmanager
def _loaded(path: Path, kind: str) -> Iterator[Any]:
    """What `numpy.load` gives; everything that it raises, then or while arrays are taken out, as one line."""
    try:
        yield np.load(path, allow_pickle=False)
    except BadInputError:
        raise
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        raise BadInputError(f"{path}: no {kind} that can be read ({error})") from error


def _require_finite(path: Path, what: str, values: Float32) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise BadInputError(f"{path}: {what}: NaN or infinite value at {[int(i) for i in bad[0]]}")
