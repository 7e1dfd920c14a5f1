"""What guesses the codes ahead of a pass, and what that costs.

A drafter cannot make a result wrong, only slow: each of its drafts is compared with what the exact pass says. It runs
within the frame's one call into compiled code, by what it writes into the decoder's plan.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cplab.sampling import Draws
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.streamed_weights import StreamedWeights
from cplab.variant import WeightStream


class DraftCost(Protocol):
    """What drafts cost, in passes over the layers with one token, by what was seen so far.

    Attributes:
        earliest: the first pass that can be given drafts.
        prior: share of drafts that is taken to hold before any was seen.
        timed: whether what a draft costs is by the clock, not by its bytes.
    """

    earliest: int
    prior: float

    @property
    def timed(self) -> bool:
        """As told above."""
        ...

    def draft(self) -> float:
        """A draft."""
        ...

    def token(self) -> float:
        """Each token more that the drafter has to take in before its first draft for a pass."""
        ...

    def learn(self, frame: DraftedFrame, one_ns: float) -> None:
        """Take in what a frame's drafts took; ``one_ns`` is the pass with one token."""
        ...


class Drafter(Protocol):
    """A way to draft; see `cplab.speculation.drafting_heads` and `cplab.speculation.drafting_model`.

    Attributes:
        name: for records, `cplab.variant.HEADS` or the format of the model that drafts.
    """

    name: str

    def connect(self, plan: NDArray[np.int64], weights: StreamedWeights) -> None:
        """Write into a decoder's plan how it drafts.

        Args:
            plan: the decoder's (`cplab.kernels.plan`); its buffers of drafts stay where they are.
            weights: the decoder's.
        """
        ...

    def begin(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], draws: Draws | None) -> None:
        """The inputs of the frame that comes next, ``[1, talker_hidden]`` each, and how its codes are drawn."""
        ...

    def cost(self) -> DraftCost:
        """Nothing learnt yet: what drafts are taken to cost before any was timed."""
        ...

    def reads(self, code: int) -> list[WeightStream]:
        """The matrices that a draft of a code reads, in order."""
        ...

    def part_bytes(self, codes: list[int]) -> NDArray[np.int64]:
        """``[parts]``: bytes that each part of a frame streams for drafts of these codes."""
        ...
