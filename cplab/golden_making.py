"""Making goldens: by the oracle alone, or with the official PyTorch class as a second opinion on every code."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from cplab import __version__
from cplab.cachedir import writing_to_cache
from cplab.errors import GoldenError
from cplab.golden import SUBNORMAL_SCALE, Golden, cached_path, find_golden, row_digests
from cplab.model import Model
from cplab.oracle import Oracle, OracleFrame
from cplab.oracle_quantised import oracle_for
from cplab.sources import synthetic

#: How much larger than the largest difference of logits between PyTorch and the oracle every top-1 margin must be.
MARGIN_FACTOR = 100
#: Inputs that are drawn at most for each frame wanted.
MOST_DRAWS = 4
#: Frames of a golden that is made on the spot for somebody's model.
ON_THE_SPOT = 10

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


def golden_for(model: Model, frames: int = ON_THE_SPOT, arithmetic: str = "f32") -> Golden:
    """The committed or cached golden of a model in an arithmetic, or one made by the oracle now, and cached.

    A golden of the 0.6B shape takes the oracle about ten seconds a frame.
    """
    synthetic.verify(model)
    found = find_golden(model, arithmetic)
    if found is not None:
        return found
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"making an oracle golden of {model.name}, {frames} frames (once) ...", highlight=False)
    ticks = iter(
        track(range(frames), f"oracle golden of {model.name} (once)", console=console, disable=not console.is_terminal)
    )

    def tick() -> None:
        next(ticks, None)

    golden = make_golden(model, frames, arithmetic=arithmetic, progress=tick)
    tick()
    with writing_to_cache(cached_path(model, arithmetic)):
        golden.save(cached_path(model, arithmetic))
    return golden


def make_golden(
    model: Model,
    frames: int,
    *,
    reference: str = "oracle",
    arithmetic: str = "f32",
    hidden: Arrays | None = None,
    progress: Progress | None = None,
) -> Golden:
    """A golden of ``frames`` frames.

    Args:
        model: the weights.
        frames: how many, at least 2.
        reference: ``oracle``, or ``torch`` to have the official class agree on every code.
        arithmetic: the rounding law; other than ``f32`` it wants the model in its format (`in_arithmetic`).
        hidden: ``[>= frames, talker_hidden]`` f32 recorded hidden states; made at the real scale where None.
        progress: called after each oracle frame.

    Raises:
        BadInputError: no such arithmetic, or a matrix in another format.
        GoldenError: PyTorch and the oracle disagree where the margin says they must not; ``torch`` with another
            arithmetic than ``f32``, of which it knows nothing.
        VariantUnavailableError: ``torch`` is asked for and not installed.
    """
    if frames < 2:
        raise GoldenError(f"{frames} frames asked for; at least 2 are wanted, or stale state cannot be told")
    if reference == "torch" and arithmetic != "f32":
        raise GoldenError(f"PyTorch computes in float32 and cannot agree on arithmetic {arithmetic}; take the oracle")
    synthetic.verify(model)
    oracle = oracle_for(model, arithmetic)
    provenance: dict[str, object] = {
        "made_by": f"cplab {__version__}",
        "reference": reference,
        "inputs": "given" if hidden is not None else "seeded, hidden std 6.6",
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
        "machine": f"{platform.system()} {platform.machine()}",
        "command": " ".join(["python -m cplab", *sys.argv[1:]]),
    }
    witness = None
    if reference == "torch":
        from cplab.official import versions

        witness = _official(model)
        provenance["official"] = versions()
    chosen, largest, passed_over = _choose(model, oracle, frames, hidden, witness, progress)
    provenance |= {"frames_passed_over": passed_over, "margin_factor": MARGIN_FACTOR}
    if witness is not None:
        provenance["largest_difference_to_reference"] = largest
    codes = np.stack([r.codes for r in chosen.results])
    forced = np.roll(codes, -1, axis=0)
    with ThreadPoolExecutor(2) as pool:
        scored = list(pool.map(oracle.scored, chosen.hidden, chosen.cb0_embed, forced))
    subnormal = oracle.frame(chosen.hidden[0] * SUBNORMAL_SCALE, chosen.cb0_embed[0] * SUBNORMAL_SCALE)
    return Golden(
        chosen.hidden,
        chosen.cb0_embed,
        codes,
        np.stack([row_digests(r.logits) for r in chosen.results]),
        chosen.margins,
        forced,
        np.stack([row_digests(r.logits) for r in scored]),
        row_digests(subnormal.logits),
        model.name,
        model.digest(),
        provenance | {"smallest_margin": float(chosen.margins.min())},
        arithmetic,
    )


def _inputs(model: Model, frames: int, start: int, hidden: Arrays | None) -> tuple[Arrays, Arrays]:
    width = model.spec.talker_hidden
    if hidden is None:
        states = synthetic.hidden_states(model.name, frames, width, start)
    else:
        if hidden.ndim != 2 or hidden.shape[1] != width or len(hidden) < start + frames:
            raise GoldenError(f"hidden has shape {list(hidden.shape)}; [{start + frames} or more, {width}] is wanted")
        states = hidden[start : start + frames].astype(np.float32)
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
    model: Model, oracle: Oracle, hidden: Arrays | None, frames: int, progress: Progress | None
) -> Iterator[Frames]:
    """As many frames as are wanted, then two at a time to make up for those that are passed over."""
    start, size = 0, frames
    limit = MOST_DRAWS * frames if hidden is None else len(hidden)
    while start + size <= limit:
        yield _run(oracle, *_inputs(model, size, start, hidden), progress)
        start, size = start + size, 2
    raise GoldenError(
        f"{start} inputs do not hold {frames} frames with codes of their own and clear margins; "
        "a model that says the same whatever it hears cannot be judged"
    )


def _choose(
    model: Model, oracle: Oracle, frames: int, hidden: Arrays | None, witness: Witness | None, progress: Progress | None
) -> tuple[Frames, float, int]:
    """Draw frames until enough have codes of their own and, with a witness, clear margins.

    Returns the frames, the largest difference of logits to the witness, and how many frames were passed over.
    """
    drawn: list[Frames] = []
    largest = 0.0
    for batch in _candidates(model, oracle, hidden, frames, progress):
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
    chosen = Frames(every.hidden[keep], every.cb0_embed[keep], [every.results[i] for i in keep])
    return chosen, largest, int(keep[-1]) + 1 - frames


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


def _official(model: Model) -> Witness:
    from cplab import official

    module = official.build(model.spec, {name: t.f32() for name, t in model.tensors.items()})
    return lambda hidden, cb0_embed: official.greedy_codes(module, hidden, cb0_embed)
