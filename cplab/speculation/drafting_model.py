"""Drafts by the same model in a format of fewer bytes, pass after pass with a KV cache of its own.

Before a pass the drafter takes in, in one pass of its own, all tokens that became known since it last drafted; then it
feeds itself its own drafts. What it had fed and what was not accepted is written over, as in the decoder's cache, and
where no drafts are wanted it does nothing at all: it catches up when it is asked again.

Whether it pays: with drafts that cost d passes each and hold with probability p, k drafts and the pass that verifies
them take ``1 + k d`` and give ``1 + p + ... + p^k`` codes, so one draft pays where ``p > d``. By bytes d is 0.28 for
q4_0 under BF16 (0.5625 of 2 bytes a weight) and 0.53 for q8_0; at best, for any number of drafts, that is 1/d times as
fast. Beside that stand a few hundredths of a pass for each token more, in the pass that verifies.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import Decoder
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.model import Model
from cplab.sampling import Draws
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.token_costs import lower_quartile
from cplab.streamed_weights import StreamedWeights
from cplab.variant import WeightStream

_TIMES_KEPT = 31
#: A drafter's pass before one was timed: so many times what its bytes say; and each token more of it.
_UNTIMED, _TOKEN = 1.5, 0.1
#: Frames without a draft after which one time is forgotten: a bad one must not stay for ever.
_FORGOTTEN_AFTER = 8


class DraftingModel(Decoder):
    """See `cplab.speculation.drafter.Drafter`; to the decoder it is a plan of its own, run by the decoder's team.

    Args:
        model: the weights; they are packed once more.
        threads: team size of the decoder.
        format: what they are packed to.

    Raises:
        cplab.errors.UnpackableError: a weight that the format cannot hold.
    """

    def __init__(self, model: Model, threads: int, *, format: str) -> None:
        self.most_tokens = model.spec.positions
        super().__init__(model, threads, format=format)
        self.name = format
        self._fed = np.zeros(model.spec.passes, np.int32)

    def connect(self, plan: NDArray[np.int64], weights: StreamedWeights) -> None:
        """Its plan's address, in the decoder's plan; the two share drafts and the team's words."""
        self._decoders_plan = plan
        plan[p.DRAFTER] = self._plan.ctypes.data
        self._plan[p.DRAFTS], self._plan[p.TEAM] = plan[p.DRAFTS], plan[p.TEAM]
        self._point(p.FED, self._fed)
        self._bytes_share = self._weights.pass_bytes / weights.pass_bytes

    def begin(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], draws: Draws | None) -> None:
        """The frame's inputs, for its own passes; also whether drafts are handed in, and whether a trace is kept."""
        self._prepare(hidden, cb0, None, draws)
        for index in (p.DRAFTS_GIVEN, p.TRACE):
            self._plan[index] = self._decoders_plan[index]

    def cost(self) -> ModelCost:
        """By bytes, until passes were timed."""
        return ModelCost(self._bytes_share)

    def reads(self, code: int) -> list[WeightStream]:
        """A pass of its own, and the code's head."""
        return [*self._weights.pass_streams, self._weights.head_streams[code]]

    def part_bytes(self, codes: list[int]) -> NDArray[np.int64]:
        """A pass for each draft."""
        found = self._weights.part_bytes(len(codes))
        found[tracing.HEAD] = sum(s.rows * s.row_bytes for s in (self._weights.head_streams[code] for code in codes))
        return found


class ModelCost:
    """See `cplab.speculation.drafter.DraftCost`: a pass of the drafter each, by the clock.

    Args:
        bytes_share: bytes of the drafter's pass beside those of the decoder's.
    """

    earliest = 0
    prior = 0.75  # it is the same model, rounded; and what is taken in tells and may gain, what is compared only costs

    def __init__(self, bytes_share: float) -> None:
        self._untimed = min(1.0, _UNTIMED * bytes_share)
        self._idle = 0
        self._drafts: deque[float] = deque(maxlen=_TIMES_KEPT)
        self._tokens: deque[float] = deque(maxlen=_TIMES_KEPT)

    def draft(self) -> float:
        """A pass over one token, with its head."""
        return lower_quartile(self._drafts) if self._drafts else self._untimed

    def token(self) -> float:
        """Each token more of the pass that catches up: never more than a pass of its own."""
        return min(lower_quartile(self._tokens), self.draft()) if self._tokens else _TOKEN

    @property
    def timed(self) -> bool:
        """Whether a draft was."""
        return bool(self._drafts)

    def learn(self, frame: DraftedFrame, one_ns: float) -> None:
        """Take in the times of a frame's drafts."""
        passes = frame.caught_up()
        self._idle = 0 if passes else self._idle + 1
        if self._idle == _FORGOTTEN_AFTER:
            self._idle = 0
            for times in (self._drafts, self._tokens):
                if times:
                    times.popleft()
        for g, tokens in passes:
            first, others = (float(ns) / one_ns for ns in frame.draft_ns[g])
            made = int(frame.made[g])
            if made > 1:
                self._drafts.append(others / (made - 1))
            if tokens == 1:
                self._drafts.append(first)
            elif self._drafts:
                self._tokens.append(max(0.0, first - self.draft()) / (tokens - 1))
            else:  # nothing but a first pass with several tokens, which is hardly longer
                self._drafts.append(first / (1 + _TOKEN * (tokens - 1)))
