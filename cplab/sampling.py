"""Sampling as a caller asks for it: `Sampling` for ``predict(..., noise=...)``, and what a variant makes of it.

The rules are in `cplab.arithmetic_sampling`; nothing here computes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.spec import Spec

Float32 = NDArray[np.float32]
UInt64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, eq=False)
class Sampling:
    """How codes are drawn. The defaults are the official ones (qwen-tts: ``subtalker_temperature`` and so on).

    Attributes:
        seed: of the generator, 0 .. 2**64 - 1; one for the call, or one for each of its B frames (of different
            utterances, say). Exactly one of ``seed`` and ``noise`` is given.
        temperature: what logits are divided by; above 0.
        top_k: how many of the largest logits may be drawn, 1 or more; None for all.
        top_p: share of probability that may be drawn, above 0; 1 for all.
        frame: index of the call's first frame within its utterance, the others follow; or an index for each of the B
            frames. The same seed and index give the same noise, so count frames up.
        noise: Gumbel samples ``[B, groups-1, vocab]`` f32 that are added instead of the generator's.
    """

    seed: int | Sequence[int] | None = None
    temperature: float = 0.9
    top_k: int | None = 50
    top_p: float = 1.0
    frame: int | Sequence[int] = 0
    noise: Float32 | None = None


def following(sampling: Sampling, frames: int) -> Sampling:
    """``sampling`` for the frame that comes ``frames`` later.

    Raises:
        BadInputError: it has an index for each of several frames.
    """
    return replace(sampling, frame=_whole("frame", sampling.frame) + frames)


#: What ``predict`` takes as ``noise``. An array alone is added to the logits as they are: temperature 1, every code.
Noise = Float32 | Sampling


@dataclass(frozen=True, slots=True)
class Draws:
    """Checked and in one form: how codes of B frames are drawn.

    Attributes:
        temperature: float32.
        top_k: 1 .. vocab.
        top_p: float32, 1 for no limit.
        seeds: ``[B]`` uint64, where ``noise`` is None.
        frames: ``[B]`` uint64.
        noise: ``[B, groups-1, vocab]`` f32, contiguous, or None.
        codebook: of pass 0, whose noise the generator makes.
    """

    temperature: np.float32
    top_k: int
    top_p: np.float32
    seeds: UInt64
    frames: UInt64
    noise: Float32 | None
    codebook: int = 1

    def __getitem__(self, part: slice) -> Draws:
        noise = None if self.noise is None else self.noise[part]
        return replace(self, seeds=self.seeds[part], frames=self.frames[part], noise=noise)

    def row(self, b: int, g: int, vocab: int) -> Float32:
        """Gumbel noise ``[vocab]`` of pass ``g`` of frame ``b``."""
        from cplab import arithmetic_sampling as law

        if self.noise is not None:
            given: Float32 = self.noise[b, g]
            return given
        row = np.empty(vocab, np.float32)
        law.gumbel_row(self.seeds[b], self.frames[b], np.uint64(self.codebook + g), row)
        return row

    def code(self, b: int, g: int, logits: Float32) -> int:
        """The code drawn in pass ``g`` of frame ``b`` from ``logits [vocab]``, by the law; -1 if not all are finite."""
        from cplab import arithmetic_sampling as law

        row = self.row(b, g, len(logits))
        return int(law.sample(np.ascontiguousarray(logits), self.temperature, self.top_k, self.top_p, row))


def choose(logits: Float32, draws: Draws | None, b: int, g: int) -> int:
    """The code of pass ``g`` of frame ``b`` from ``logits [vocab]``: drawn, or the largest where ``draws`` is None.

    For variants that compute in Python: numpy's argmax, or the law of sampling and not its kernel.

    Returns:
        The code, or -1 where a logit is not finite.
    """
    if draws is not None:
        return draws.code(b, g, logits)
    return int(np.argmax(logits)) if np.isfinite(logits).all() else -1


def gumbel_noise(seed: int, frames: int, spec: Spec, *, frame: int = 0) -> Float32:
    """The generator's noise as an array, ``[frames, groups-1, vocab]`` f32, for frames ``frame``, ``frame + 1``, ..."""
    draws = checked_draws(spec, Sampling(seed, frame=frame), frames)
    assert draws is not None
    rows = [[draws.row(b, g, spec.vocab) for g in range(spec.passes)] for b in range(frames)]
    return np.array(rows, np.float32)


def checked_draws(spec: Spec, noise: Any, B: int) -> Draws | None:
    """The argument ``noise`` of ``predict`` for B frames; None where that is None.

    Raises:
        BadInputError: naming what is wrong and how.
    """
    return None if noise is None else draws_of(noise, (B, spec.passes, spec.vocab), codebook=1)


def draws_of(noise: Any, shape: tuple[int, int, int], *, codebook: int) -> Draws:
    """How codes ``[B, passes]`` are drawn from logits of ``shape [B, passes, vocab]``.

    Args:
        noise: a `Sampling`, or Gumbel noise of that shape.
        shape: B, passes and vocabulary.
        codebook: which one pass 0 draws.

    Raises:
        BadInputError: naming what is wrong and how.
    """
    if isinstance(noise, np.ndarray):
        noise = Sampling(None, 1.0, None, 1.0, noise=noise)
    if not isinstance(noise, Sampling):
        raise BadInputError(f"noise is {type(noise).__name__}; a float32 array or a cplab.Sampling is wanted")
    if (noise.seed is None) == (noise.noise is None):
        raise BadInputError("Sampling wants a seed or noise, and not both")
    return Draws(
        _positive("temperature", noise.temperature),
        _top_k(noise.top_k, shape[2]),
        _top_p(noise.top_p),
        _words("seed", 0 if noise.seed is None else noise.seed, shape[0], 0),
        _words("frame", noise.frame, shape[0], 1),
        None if noise.noise is None else _gumbel(noise.noise, shape),
        codebook,
    )


def _positive(name: str, value: Any) -> np.float32:
    """A finite number above 0, also once it is float32."""
    number = _number(name, value)
    with np.errstate(over="ignore", under="ignore"):
        single = np.float32(number)
    if not (np.isfinite(single) and single >= np.finfo(np.float32).tiny):
        raise BadInputError(f"{name} is {value}; a number above 0 is wanted")
    return single


def _top_p(value: Any) -> np.float32:
    if _number("top_p", value) > 1:
        raise BadInputError(f"top_p is {value}; above 0 and at most 1 is wanted")
    return _positive("top_p", value)


def _top_k(value: Any, vocab: int) -> int:
    if value is None:
        return vocab
    k = _whole("top_k", value)
    if k < 1:
        raise BadInputError(f"top_k is {value}; at least 1 is wanted, or None for all codes")
    return min(k, vocab)


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        raise BadInputError(f"{name} is {type(value).__name__}; a number is wanted")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        raise BadInputError(f"{name} is NaN; a number is wanted")
    return number


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool | np.bool_):
        raise BadInputError(f"{name} is {value}; a whole number is wanted")
    try:
        return operator.index(value)
    except TypeError:
        raise BadInputError(f"{name} is {type(value).__name__} {value}; a whole number is wanted") from None


def _words(name: str, value: Any, B: int, step: int) -> UInt64:
    """One 64-bit word a frame: given for each, or from the first on in steps."""
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1:
        numbers = [_whole(name, one) for one in value]
        if len(numbers) != B:
            raise BadInputError(f"{name} has {len(numbers)} numbers for {B} frames")
    else:
        first = _whole(name, value)
        numbers = [first + step * b for b in range(B)]
    if min(numbers) < 0 or max(numbers) >= 2**64:
        raise BadInputError(f"{name} is {value}; 0 to 2**64 - 1 is wanted")
    return np.array(numbers, np.uint64)


def _gumbel(noise: Any, wanted: tuple[int, ...]) -> Float32:
    if not isinstance(noise, np.ndarray) or noise.dtype != np.float32:
        raise BadInputError(f"noise is {getattr(noise, 'dtype', type(noise).__name__)}; float32 is wanted")
    if noise.shape != wanted:
        raise BadInputError(f"noise has shape {list(noise.shape)}; {list(wanted)} is wanted")
    if not np.isfinite(noise).all():
        raise BadInputError("noise holds NaN or infinite values")
    return np.ascontiguousarray(noise)
