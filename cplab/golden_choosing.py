"""Choosing a golden's frames: inputs are drawn or given, and those that judge nothing are passed over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cplab.errors import GoldenError
from cplab.model import Model
from cplab.oracle import Oracle, OracleFrame
from cplab.sources import synthetic

#: How much larger than the largest difference of logits between PyTorch and the oracle every top-1 margin must be.
MARGIN_FACTOR = 100
#: Inputs that are drawn at most for each frame wanted.
MOST_DRAWS = 4

Arrays = NDArray[np.float32]
Progress = Callable[[], None]
#: ``(hidden, cb0_embed) -> (codes, logits)`` of another implementation of the model.
Witness = Callable[[Arrays, Arrays], tuple[NDArray[np.int32], Arrays]]


@dataclass(frozen=True, slots=True)
class Frames:
    """Inputs and what the oracle said of them."""

    hidden: Arrays
    cb0_embed: Arrays
    results: list[OracleFrame]

    @property
    def margins(self) -> Arrays:
        """``[F, groups-1]``: from the largest logit to the second."""
        top = [np.partition(r.logits, -2, axis=-1)[:, -2:] for r in self.results]
        return np.stack([pair[:, 1] - pair[:, 0] for pair in top]).astype(np.float32)


@dataclass(frozen=True, slots=True)
class GivenFrames:
    """Recorded inputs, all of one length; embeddings of CB0 may be lacking."""

    hidden: Arrays
    cb0_embed: Arrays | None


def given_frames(model: Model, frames: int, hidden: Arrays | None, cb0_embed: Arrays | None) -> GivenFrames | None:
    """Recorded inputs that fit the model and each other, or None."""
    if hidden is None:
        if cb0_embed is not None:
            raise GoldenError("embeddings of CB0 are given without hidden states")
        return None
    width = model.spec.talker_hidden
    for what, array in (("hidden", hidden), ("cb0_embed", cb0_embed)):
        if array is None:
            continue
        if array.ndim != 2 or array.shape[1] != width or len(array) < frames:
            raise GoldenError(f"{what} has shape {list(array.shape)}; [{frames} or more, {width}] is wanted")
        if len(array) != len(hidden):
            raise GoldenError(f"{len(hidden)} hidden states and {len(array)} embeddings of CB0 are given")
    return GivenFrames(hidden, cb0_embed)


def inputs_told(hidden: Arrays | None, cb0_embed: Arrays | None) -> str:
    """Where inputs come from, for the provenance."""
    if hidden is None:
        return "seeded, hidden std 6.6"
    return "given" if cb0_embed is not None else "given hidden states, seeded CB0"


def _inputs(model: Model, frames: int, start: int, given: GivenFrames | None) -> tuple[Arrays, Arrays]:
    width, part = model.spec.talker_hidden, slice(start, start + frames)
    if given is None:
        states = synthetic.hidden_states(model.name, frames, width, start)
    else:
        states = given.hidden[part].astype(np.float32)
        if given.cb0_embed is not None:
            return states, given.cb0_embed[part].astype(np.float32)
    return states, synthetic.cb0_embeddings(model.name, frames, width, start)


def _run(oracle: Oracle, hidden: Arrays, cb0_embed: Arrays, progress: Progress | None) -> Frames:
    def one(pair: tuple[Arrays, Arrays]) -> OracleFrame:
        return oracle.frame(*pair)

    results = []
    with ThreadPoolExecutor(2) as pool:  # compiled scalar code lets go of Python's lock
        for result in pool.map(one, zip(hidden, cb0_embed, strict=True)):
            results.append(result)
            if progress is not None:
                progress()
    return Frames(hidden, cb0_embed, results)


def _candidates(
    model: Model, oracle: Oracle, given: GivenFrames | None, frames: int, progress: Progress | None
) -> Iterator[Frames]:
    """As many frames as are wanted, then two at a time to make up for those that are passed over."""
    start, size = 0, frames
    limit = MOST_DRAWS * frames if given is None else len(given.hidden)
    while start < limit:
        size = min(size, limit - start)
        yield _run(oracle, *_inputs(model, size, start, given), progress)
        start, size = start + size, 2


def choose(
    model: Model,
    oracle: Oracle,
    frames: int,
    given: GivenFrames | None,
    witness: Witness | None,
    progress: Progress | None,
) -> tuple[Frames, list[int], float, int]:
    """Draw frames until enough have codes of their own and, with a witness, clear margins.

    Returns the frames, their places among what was drawn, the largest difference of logits to the witness, and how
    many frames were passed over.
    """
    drawn: list[Frames] = []
    largest = 0.0
    for batch in _candidates(model, oracle, given, frames, progress):
        if witness is not None:
            largest = max(largest, _largest_difference(witness, batch))
        drawn.append(batch)
        hiddens, embeds = (np.concatenate([getattr(b, name) for b in drawn]) for name in ("hidden", "cb0_embed"))
        every = Frames(hiddens, embeds, [r for b in drawn for r in b.results])
        _, first = np.unique(np.stack([r.codes for r in every.results]), axis=0, return_index=True)
        clear = np.flatnonzero(every.margins.min(axis=1) >= MARGIN_FACTOR * largest)
        keep = np.intersect1d(first, clear)[:frames]
        if len(keep) == frames:
            break
    if len(keep) < (frames if given is None else 2):
        raise GoldenError(
            f"{len(every.hidden)} inputs do not hold {frames} frames with codes of their own and clear margins; "
            "a model that says the same whatever it hears cannot be judged"
        )
    chosen = Frames(every.hidden[keep], every.cb0_embed[keep], [every.results[i] for i in keep])
    seen = int(keep[-1]) + 1 if len(keep) == frames else len(every.hidden)
    return chosen, keep.tolist(), largest, seen - len(keep)


def _largest_difference(witness: Witness, batch: Frames) -> float:
    """Largest difference of logits between a witness and the oracle, wherever both saw the same codes before.

    Raises:
        GoldenError: they choose different codes although the margin is clear.
    """
    largest = 0.0
    codes, logits = witness(batch.hidden, batch.cb0_embed)
    for their_codes, their_logits, ours, margin in zip(codes, logits, batch.results, batch.margins, strict=True):
        same = np.cumprod(np.r_[True, their_codes[:-1] == ours.codes[:-1]]).astype(bool)
        largest = max(largest, float(np.abs(their_logits - ours.logits)[same].max()))
        wrong = same & (their_codes != ours.codes) & (margin > MARGIN_FACTOR * largest)
        if wrong.any():
            raise GoldenError(f"the reference and the oracle disagree at pass {int(np.argmax(wrong))}; one is wrong")
    return largest
