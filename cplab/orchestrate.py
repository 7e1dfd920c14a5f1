"""The whole loop: the talker chooses CB0, the code predictor the other codes, and their embeddings go into the talker.

What is fed back is the talker's embedding of CB0, the code predictor's of CB1, CB2, ..., and the next text or the pad,
added in this order in float32: a law like those of `cplab.arithmetic`, so that the same codes give the same bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cplab.cb0 import Rules, drawn, greedy
from cplab.errors import BadInputError
from cplab.model import Model
from cplab.recorded import Prompt
from cplab.sampling import Sampling, following
from cplab.sources import synthetic
from cplab.talker import Heard
from cplab.variant import CodePredictor

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: Positions of the prefill that the tablet's figures are of, and how much text comes with a seeded one.
SEEDED_POSITIONS, SEEDED_TEXT = 19, 8
FRAMES_A_SECOND = 12.5


class Speaks(Protocol):
    """What the loop asks of a talker; `cplab.talker.Talker` is one."""

    codec_embedding: Float32

    def prefill(self, X: Float32) -> Heard:
        """Begin with ``X [T, width]``."""
        ...

    def step(self, x: Float32) -> Heard:
        """Go on with ``x [width]``."""
        ...


@dataclass(frozen=True, slots=True)
class Times:
    """Nanoseconds of a run.

    Attributes:
        prefill: the talker's prefill.
        talker: its step after each frame, ``[N]``.
        cp: the code predictor's frames, ``[N]``.
        frame: whole turns of the loop, ``[N]``.
    """

    prefill: int
    talker: Int64
    cp: Int64
    frame: Int64

    @property
    def other(self) -> Int64:
        """What of each turn was neither talker nor code predictor, ``[N]``."""
        return self.frame - self.talker - self.cp


@dataclass(frozen=True, slots=True)
class Run:
    """What the loop did in N frames.

    Attributes:
        codes: what was spoken and fed back, CB0 first, ``[N, groups]``; the teacher's where there was one.
        predicted: what talker and code predictor chose themselves, ``[N, groups]``.
        inputs: the talker's input after each frame, ``[N, width]`` f32.
        hidden: its state from which each frame was made, ``[N, width]`` f32.
        ended: whether the end code was chosen.
        times: how long it took.
    """

    codes: Int32
    predicted: Int32
    inputs: Float32
    hidden: Float32
    ended: bool
    times: Times


class Embeddings:
    """The tables of one frame's sum.

    Args:
        codec_embedding: the talker's, of CB0, ``[vocab, width]`` f32.
        model: whose tables are those of CB1, CB2, ...
    """

    def __init__(self, codec_embedding: Float32, model: Model) -> None:
        self.of_cb0 = codec_embedding
        self._tables = [model.tensors[f"model.codec_embedding.{g}.weight"] for g in range(model.spec.passes)]

    def next_input(self, codes: Int32, text: Float32) -> Float32:
        """The talker's input after a frame, ``[width]`` f32: CB0, CB1, ... in order, then text.

        Args:
            codes: CB0 and the others, ``[groups]``.
            text: the next text's embedding, or the pad, ``[width]``.
        """
        total: Float32 = self.of_cb0[codes[0]].copy()
        for tensor, code in zip(self._tables, codes[1:], strict=True):
            total += tensor.format.unpack(tensor.data[code])
        total += text
        return total


@dataclass(slots=True)
class Speech:
    """Everything that a run is made of.

    Attributes:
        talker: gives hidden states and CB0's logits.
        predictor: gives the other codes.
        embeddings: what is fed back.
        prompt: what goes into the talker first, and the text that comes with each frame; ``tts_pad`` must be there.
        rules: of CB0.
        cb0_sampling: how CB0 is drawn, by a seed; None: the largest logit wins. Frames are counted on from its first.
        sampling: the same of the code predictor's codes.
        teacher: codes that are fed back instead of those chosen, ``[frames, groups]``.
    """

    talker: Speaks
    predictor: CodePredictor
    embeddings: Embeddings
    prompt: Prompt
    rules: Rules
    cb0_sampling: Sampling | None = None
    sampling: Sampling | None = None
    teacher: Int32 | None = None
    _pad: Float32 = field(init=False)

    def __post_init__(self) -> None:
        if self.prompt.tts_pad is None:
            raise BadInputError("the prompt has no tts_pad, which follows the text")
        self._pad = self.prompt.tts_pad
        for sampling in (self.cb0_sampling, self.sampling):
            if sampling is not None and sampling.seed is None:
                raise BadInputError("the loop draws by a seed; noise that is given is of one call")

    def run(self, frames: int, progress: Callable[[], None] | None = None) -> Run:
        """Speak until the end code, or that many frames; a teacher ends with its codes.

        Args:
            frames: how many at most.
            progress: called after each frame.

        Raises:
            BadInputError: frames is below 1.
            EngineError, NonFiniteLogitsError: talker or code predictor gave up.
        """
        if frames < 1:
            raise BadInputError(f"frames is {frames}; at least 1 is wanted")
        if self.teacher is not None:
            frames = min(frames, len(self.teacher))
        clock = time.perf_counter_ns
        kept: list[tuple[Int32, Int32, Float32, Float32]] = []
        times: list[tuple[int, int, int]] = []
        began = clock()
        heard = self.talker.prefill(self.prompt.prefill)
        prefill_ns = clock() - began
        spoken: list[int] = []
        ended = False
        while len(kept) < frames and not ended:
            frame, began = len(kept), clock()
            cb0 = self._chosen(heard, spoken, frame)
            if cb0 == self.rules.end and self.teacher is None:
                ended = True
                continue
            taught = None if self.teacher is None else self.teacher[frame]
            fed0 = cb0 if taught is None else int(taught[0])
            embed = self.embeddings.of_cb0[fed0]
            at = clock()
            others = self.predictor.predict(
                heard.hidden[None],
                embed[None],
                forced=None if taught is None else taught[None, 1:],
                noise=self.noise(frame),
            )[0]
            cp_ns = clock() - at
            predicted = np.concatenate([np.array([cb0], np.int32), others])
            codes = predicted if taught is None else taught
            x = self.embeddings.next_input(codes, self._text(frame))
            at = clock()
            following = self.talker.step(x)
            talker_ns = clock() - at
            kept.append((codes, predicted, x, heard.hidden))
            spoken.append(fed0)
            heard = following
            times.append((talker_ns, cp_ns, clock() - began))
            if progress is not None:
                progress()
        if not kept:
            raise BadInputError("the talker chose the end code before its first frame")
        taken, predicted_all, inputs, hidden = (np.stack(column) for column in zip(*kept, strict=True))
        talker, cp, frame_ns = np.array(times, np.int64).T
        return Run(taken, predicted_all, inputs, hidden, ended, Times(prefill_ns, talker, cp, frame_ns))

    def _chosen(self, heard: Heard, spoken: list[int], frame: int) -> int:
        scores = self.rules.ruled(heard.logits, spoken)
        return greedy(scores) if self.cb0_sampling is None else drawn(scores, self.cb0_sampling, frame)

    def noise(self, frame: int) -> Sampling | None:
        """How the code predictor draws the codes of a frame; None: it does not."""
        return None if self.sampling is None else following(self.sampling, frame)

    def _text(self, frame: int) -> Float32:
        trailing = self.prompt.trailing
        return self._pad if trailing is None or frame >= len(trailing) else trailing[frame]


def seeded_prompt(width: int) -> Prompt:
    """A prompt of no meaning at the scale of embeddings: 19 positions, text for 8 frames, a pad."""
    rows = synthetic.cb0_embeddings(f"{synthetic.PREFIX}prompt", SEEDED_POSITIONS + SEEDED_TEXT + 1, width)
    text = SEEDED_POSITIONS + SEEDED_TEXT
    return Prompt(rows[:SEEDED_POSITIONS], rows[SEEDED_POSITIONS:text], rows[text])
