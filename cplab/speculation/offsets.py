"""Offset vectors: what a draft head adds to the hidden state, fitted on recorded frames and kept beside the model.

Head g + t was trained on the hidden state t positions further on, and the current one differs from that in part by what
is the same for every frame. So one vector for each depth is added (the idea of arXiv 2609.37007): first the mean
difference of the two hidden states, which is the least-squares fit, then some gradient steps towards the codes that
came out. A vector is kept only where it drafts better on frames that it was not fitted on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, replacing
from cplab.errors import BadInputError
from cplab.golden import Golden
from cplab.model import Model
from cplab.naive import Naive

Array = NDArray[np.float32]

#: Depths that have a vector.
DEPTHS = 3
#: Gradient steps, and the share of frames that are held out to judge.
_STEPS, _HELD_OUT = 30, 0.25
#: What each depth chooses from.
CANDIDATES = ("no vector", "the mean difference", "what gradient steps made")
#: Frames below which nothing can be fitted and judged.
LEAST_FRAMES = 8


@dataclass(frozen=True, slots=True)
class Fit:
    """What came of fitting.

    Attributes:
        offsets: ``[depths, hidden]`` f32; zeros for a depth where none was better.
        held: ``[depths, 3]``: share of drafts that hold on held-out frames without a vector, with the mean difference,
            and after gradient steps.
        frames: how many were fitted on, and how many held out.
    """

    offsets: Array
    held: NDArray[np.float64]
    frames: tuple[int, int]

    @property
    def kept(self) -> list[int]:
        """Which column of ``held`` each depth keeps: the largest, of equal ones the first, so no vector for nothing."""
        return [_kept(shares) for shares in self.held]

    def kept_words(self, depth: int) -> str:
        """What a depth (from 0 on) keeps, and why."""
        column = self.kept[depth]
        if not column:
            return "no vector, as none holds more often than without"
        return f"{CANDIDATES[column]}, which holds most often on frames held out"


def fit(model: Model, golden: Golden, tick: Callable[[], None] = lambda: None) -> Fit:
    """Fit a vector for each depth on the golden's frames, in plain numpy.

    Args:
        model: the weights.
        golden: recorded frames of these weights; made of real hidden states where the model is real.
        tick: called after each depth.

    Raises:
        GoldenError: of other weights.
        BadInputError: too few frames, or a model with too few codes for a draft.
    """
    golden.require(model, golden.arithmetic)
    if len(golden) < LEAST_FRAMES:
        raise BadInputError(f"the golden has {len(golden)} frames; at least {LEAST_FRAMES} are wanted to fit and judge")
    spec = model.spec
    depths = min(DEPTHS, spec.passes - 2)
    if depths < 1:
        raise BadInputError(f"{model.name}: nothing is drafted in frames of {spec.passes} codes")
    naive = Naive(model, "f32")
    states = naive.states(naive.inputs(golden.hidden, golden.cb0_embed, golden.codes))
    heads = [model.f32(f"lm_head.{g}.weight") for g in range(spec.passes)]
    cut = max(1, round(len(golden) * _HELD_OUT))
    offsets, held = np.zeros((depths, spec.hidden), np.float32), np.zeros((depths, len(CANDIDATES)))
    for depth in range(depths):
        task = _Task(states, golden.codes, heads, depth)
        learnt, judged = slice(0, len(golden) - cut), slice(len(golden) - cut, None)
        candidates = [np.zeros(spec.hidden, np.float32), task.mean_difference(learnt)]
        candidates.append(task.descended(min(candidates, key=lambda o: task.loss(o, learnt)[0]), learnt))
        held[depth] = [task.held(offset, judged) for offset in candidates]
        offsets[depth] = candidates[_kept(held[depth])]
        tick()
    return Fit(offsets, held, (len(golden) - cut, cut))


def _kept(held: NDArray[np.float64]) -> int:
    return int(np.argmax(held))


@dataclass(frozen=True, slots=True)
class _Task:
    """Drafts at one depth: from the state of code g - 1 to code g + depth, for every g."""

    states: Array
    codes: NDArray[np.int32]
    heads: list[Array]
    depth: int

    def mean_difference(self, frames: slice) -> Array:
        """Least squares: from the state at hand to the one that the head was trained on."""
        S, ahead = self.states[frames], self.depth + 1
        difference: Array = (S[:, 1 + ahead :] - S[:, 1:-ahead]).mean(axis=(0, 1), dtype=np.float64).astype(np.float32)
        return difference

    def loss(self, offset: Array, frames: slice) -> tuple[float, Array]:
        """Mean cross-entropy of the codes that came out, and its gradient ``[hidden]``."""
        total, gradient, count = 0.0, np.zeros_like(offset), 0
        for g in range(1, len(self.heads) - self.depth):
            head, codes = self.heads[g + self.depth], self.codes[frames, g + self.depth]
            logits = (self.states[frames, g] + offset) @ head.T
            logits -= logits.max(axis=1, keepdims=True)
            p = np.exp(logits)
            p /= p.sum(axis=1, keepdims=True)
            rows = np.arange(len(codes))
            total -= float(np.log(p[rows, codes] + 1e-30).sum())
            p[rows, codes] -= 1
            gradient += (p @ head).sum(axis=0)
            count += len(codes)
        return total / count, gradient / np.float32(count)

    def descended(self, offset: Array, frames: slice) -> Array:
        """Some steps down the gradient, longer after one that helped and shorter after one that did not."""
        loss, gradient = self.loss(offset, frames)
        step = np.float32(1.0)
        for _ in range(_STEPS):
            tried = offset - step * gradient
            new, slope = self.loss(tried, frames)
            if new < loss:
                offset, loss, gradient, step = tried, new, slope, step * np.float32(1.5)
            else:
                step *= np.float32(0.4)
        return offset

    def held(self, offset: Array, frames: slice) -> float:
        """Share of drafts that are the codes that came out."""
        right = [
            ((self.states[frames, g] + offset) @ self.heads[g + self.depth].T).argmax(axis=1)
            == self.codes[frames, g + self.depth]
            for g in range(1, len(self.heads) - self.depth)
        ]
        return float(np.mean(right))


def path_beside(model: Model) -> Path:
    """Where a model's vectors are kept: in a checkpoint's folder, beside a file, in the cache for a seeded model."""
    place = Path(model.name)
    if model.synthetic or not place.exists():
        return cache_dir() / "drafters" / f"{model.digest()}.npz"
    return place / "cplab-drafter.npz" if place.is_dir() else place.with_name(place.name + ".drafter.npz")


def save(model: Model, offsets: Array, path: Path) -> None:
    """Write vectors ``[depths, hidden]`` of a model."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, offsets=offsets, digest=np.frombuffer(model.digest().encode(), np.uint8))


def load(model: Model, path: Path | None = None) -> Array | None:
    """The model's vectors as `cplab.speculation.decoder` takes them, ``[passes, depths, hidden]``; None where none are.

    Raises:
        BadInputError: a damaged file, or one of other weights.
    """
    path = path_beside(model) if path is None else path
    if not path.exists():
        return None
    try:
        with np.load(path, allow_pickle=False) as stored:
            offsets, digest = stored["offsets"], bytes(stored["digest"]).decode()
    except Exception as error:  # zipfile, zlib and numpy each have their own errors for damage
        raise BadInputError(f"{path}: no drafter or damaged ({error}); remove it or fit it again") from error
    if digest != model.digest():
        raise BadInputError(f"{path}: of weights {digest}, {model.name} has {model.digest()}; fit it again")
    if offsets.ndim != 2 or offsets.shape[1] != model.spec.hidden or offsets.dtype != np.float32:
        raise BadInputError(f"{path}: vectors have shape {list(offsets.shape)}; fit it again")
    return np.repeat(offsets[None], model.spec.passes, axis=0)
