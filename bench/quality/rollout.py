"""Long rollouts: some hundred frames in a loop, where what is said comes back as what is heard.

The code predictor keeps nothing between frames, so that it cannot drift by itself. What can is the loop: talker, codes,
their embeddings, talker (`cplab.orchestrate`). An implementation goes twice. *Its own loop* feeds back its own codes:
does it go on like speech that the float32 loop would give, or does it repeat itself? *Along* the float32 loop it sees
that loop's frames, codes pinned: does it get worse with time? Short checks pass where long rollouts collapse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.quality.rows import kl_divergence
from bench.quality.teacher_forced import Answers
from bench.quality.truth import Float32, Int32, Truth
from bench.records.quality import Collapse, Rollout
from cplab.cb0 import Rules
from cplab.errors import NonFiniteLogitsError
from cplab.model import Model
from cplab.orchestrate import Embeddings, Speaks, Speech, seeded_prompt
from cplab.sampling import Noise
from cplab.variant import CodePredictor, Trace, WeightStream

FRAMES = 500
WINDOW = 50
EVERY = 5


@dataclass(frozen=True, slots=True)
class Said:
    """What a code predictor heard and said in a loop of N frames.

    Attributes:
        hidden: ``[N, talker_hidden]`` f32.
        cb0_embed: ``[N, talker_hidden]`` f32.
        codes: ``[N, groups-1]`` int32.
        kept: logits of every `EVERY`th frame, ``[ceil(N / EVERY), groups-1, vocab]`` f32; empty where it gives none.
        non_finite: rows with a logit that is not finite.
        stopped: why the loop ended early, or "".
    """

    hidden: Float32
    cb0_embed: Float32
    codes: Int32
    kept: Float32
    non_finite: int = 0
    stopped: str = ""

    def along(self) -> Truth:
        """Every `EVERY`th frame with its own codes pinned, of a loop that gave logits."""
        part = slice(None, None, EVERY)
        return Truth(self.hidden[part], self.cb0_embed[part], self.codes[part], self.kept)


class _Listening:
    """A predictor that takes down what goes in and out."""

    def __init__(self, predictor: CodePredictor) -> None:
        self._predictor = predictor
        self.passes_per_frame, self.bytes_per_frame = predictor.passes_per_frame, predictor.bytes_per_frame
        self.heard: list[tuple[Float32, Float32, Int32]] = []
        self.kept: list[Float32] = []
        self.non_finite = 0

    def predict(
        self,
        hidden: Float32,
        cb0_embed: Float32,
        *,
        forced: Int32 | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> Int32:
        trace = Trace()
        codes = self._predictor.predict(hidden, cb0_embed, forced=forced, trace=trace, noise=noise)
        if trace.logits is not None:
            self.non_finite += int((~np.isfinite(trace.logits).all(axis=-1)).sum())
            if len(self.heard) % EVERY == 0:
                self.kept.append(trace.logits[0].copy())
        self.heard.append((hidden[0].copy(), cb0_embed[0].copy(), codes[0].copy()))
        return codes

    def streams(self) -> list[WeightStream]:
        return self._predictor.streams()


def rollout(
    predictor: CodePredictor,
    model: Model,
    talker: Speaks,
    rules: Rules,
    frames: int,
    progress: Callable[[], None] | None = None,
) -> Said:
    """Put a predictor into the loop for some frames; non-finite logits and the end code end it early.

    Args:
        predictor: greedy.
        model: whose tables its codes are looked up in: the original one, for every implementation of it.
        talker: what chooses CB0 and hears what was said.
        rules: of CB0.
        frames: how many at most.
        progress: called after each.
    """
    listening = _Listening(predictor)
    prompt = seeded_prompt(model.spec.talker_hidden)
    speech = Speech(talker, listening, Embeddings(talker.codec_embedding, model), prompt, rules)
    stopped = ""
    try:
        ended = speech.run(frames, progress).ended
        stopped = f"the talker chose the end code after frame {len(listening.heard) - 1}" if ended else ""
    except NonFiniteLogitsError as error:
        stopped = f"frame {len(listening.heard)}: non-finite logits in pass {error.pass_index}"
        listening.non_finite += 1
    width, spec = model.spec.talker_hidden, model.spec
    heard = listening.heard or [
        (np.empty(width, np.float32), np.empty(width, np.float32), np.empty(spec.passes, np.int32))
    ]
    hidden, cb0_embed, codes = (np.stack(column)[: len(listening.heard)] for column in zip(*heard, strict=True))
    kept = np.stack(listening.kept) if listening.kept else np.empty((0, spec.passes, spec.vocab), np.float32)
    return Said(hidden, cb0_embed, codes, kept, listening.non_finite, stopped)


def collapse(said: Said) -> Collapse:
    """A rollout by itself."""
    codes = said.codes
    used = sum(len(np.unique(column)) for column in codes.T)
    return Collapse(
        frames=len(codes),
        distinct=len(np.unique(codes, axis=0)),
        repeats=int((codes[1:] == codes[:-1]).all(axis=1).sum()),
        codes_used=used,
        non_finite=said.non_finite,
        stopped=said.stopped,
    )


def unrelated(said: Said) -> float | None:
    """Share of codes that frames half a rollout apart have in common; None for fewer than two frames."""
    half = len(said.codes) // 2
    return float((said.codes[:half] == said.codes[half : 2 * half]).mean()) if half else None


def beside(own: Said, reference: Said, along: Answers | None) -> Rollout:
    """A rollout beside the float32 law's.

    Args:
        own: the implementation's.
        reference: the law's.
        along: the implementation's answers to `Said.along` of the reference; None where it takes no forced codes.
    """
    same = np.zeros(reference.codes.shape, np.bool_)
    common = min(len(own.codes), len(same))  # where it stopped before the law's loop, the rest agrees nowhere
    same[:common] = own.codes[:common] == reference.codes[:common]
    whole = same.all(axis=1)
    agreement, divergence = np.empty(0), None
    if along is not None:
        truth = reference.along()
        agreement = (along.codes == truth.chosen).mean(axis=1)
        if along.logits is not None and np.isfinite(along.logits).all():
            divergence = kl_divergence(along.logits, truth.logits).mean(axis=1)
    return Rollout(
        window=WINDOW,
        own=collapse(own),
        agreement=_windows(same.mean(axis=1), WINDOW),
        first_difference=None if whole.all() else int(np.argmin(whole)),
        along_every=EVERY,
        along_agreement=_windows(agreement, WINDOW // EVERY),
        along_kl=[] if divergence is None else _windows(divergence, WINDOW // EVERY),
    )


def _windows(values: NDArray[np.floating], size: int) -> list[float]:
    """Means of stretches of ``size``; the last one may be shorter."""
    return [float(np.mean(values[at : at + size])) for at in range(0, len(values), size)]
