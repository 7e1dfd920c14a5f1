"""Drafts by the model's own later heads, on the hidden state at hand: a head for each, and no pass over the layers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.model import Model
from cplab.sampling import Draws
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.offsets import load
from cplab.streamed_weights import StreamedWeights
from cplab.variant import HEADS, WeightStream


class DraftingHeads:
    """See `cplab.speculation.drafter.Drafter`.

    Args:
        model: the weights.
        offsets: ``[passes, depths, hidden]`` f32: what is added to the normed hidden state before the draft head of
            the code at each depth (0 the nearest) for the pass that begins with each code; default: what
            `cplab.speculation.offsets` keeps of these weights, if anything.

    Raises:
        BadInputError: offsets of another shape, or not finite.
    """

    name = HEADS

    def __init__(self, model: Model, offsets: NDArray[np.float32] | None = None) -> None:
        spec = model.spec
        offsets = load(model) if offsets is None else offsets
        if offsets is None:
            offsets = np.zeros((spec.passes, 0, spec.hidden), np.float32)
        if offsets.ndim != 3 or offsets.shape[::2] != (spec.passes, spec.hidden) or not np.isfinite(offsets).all():
            raise BadInputError(f"offsets have shape {list(offsets.shape)} or are not finite")
        self._offsets = np.ascontiguousarray(offsets, np.float32)

    def connect(self, plan: NDArray[np.int64], weights: StreamedWeights) -> None:
        """Offsets, in the decoder's plan; heads are the decoder's own."""
        plan[p.OFFSETS], plan[p.OFFSET_DEPTHS] = self._offsets.ctypes.data, self._offsets.shape[1]
        self._weights = weights

    def begin(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], draws: Draws | None) -> None:
        """Nothing: heads read what the decoder's pass leaves."""

    def cost(self) -> HeadCost:
        """A head by its bytes, for good."""
        return HeadCost(self._weights.head_share)

    def reads(self, code: int) -> list[WeightStream]:
        """The code's head."""
        return [self._weights.head_streams[code]]

    def part_bytes(self, codes: list[int]) -> NDArray[np.int64]:
        """Heads alone."""
        found = np.zeros(len(tracing.PARTS), np.int64)
        found[tracing.HEAD] = sum(s.rows * s.row_bytes for code in codes for s in self.reads(code))
        return found


class HeadCost:
    """See `cplab.speculation.drafter.DraftCost`: a head each, by its bytes; nothing is known before the first pass."""

    earliest = 1
    prior = 0.0  # a draft that is only compared costs next to nothing, and tells
    timed = False

    def __init__(self, head_share: float) -> None:
        self._head = head_share

    def draft(self) -> float:
        """A head."""
        return self._head

    def token(self) -> float:
        """Nothing: there is nothing to catch up with."""
        return 0.0

    def learn(self, frame: DraftedFrame, one_ns: float) -> None:
        """Nothing: bytes tell."""
