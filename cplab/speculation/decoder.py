"""A decoder that guesses codes with later heads and verifies them with one pass over several tokens.

The hidden state from which head g reads code g says something about codes g + 1, g + 2, ... as well: their own heads on
that state draft them (TensorRT-Edge-LLM describes it; arXiv 2609.37007 adds a learned offset vector for each depth).
One pass then takes in the known code and its drafts, each at its position, each by its own embedding table; as long as
a draft is what its own head says on its own token, the next token's head gives one code more. What a wrong draft left
in the KV cache is written over before anything sees it.

The kernels give a token the same bits whatever stands beside it, so codes and logits are those of one code a pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.kernels import plan as p
from cplab.kernels import tracing
from cplab.model import Model
from cplab.speculation.acceptance import Acceptance
from cplab.speculation.draft_length import DraftLength
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.offsets import load
from cplab.variant import WeightStream


class SpeculativeDecoder(Decoder):
    """See `cplab.variant.CodePredictor`; frames of a batch are predicted one after another.

    ``passes_per_frame``, ``bytes_per_frame`` and ``streams()`` tell of the latest frames, rounded to whole passes and
    whole heads; ``acceptance`` has the counts.

    Args:
        model: the weights.
        threads: team size, 1 or more.
        format: a name of `cplab.formats`.
        offsets: ``[passes, depths, hidden]`` f32: what is added to the normed hidden state before the draft head of
            the code at each depth (0 the nearest) for the pass that begins with each code; default: what
            `cplab.speculation.offsets` keeps of these weights, if anything.

    Raises:
        BadInputError: offsets of another shape, or not finite.
    """

    frames_at_once = 1

    def __init__(self, model: Model, threads: int, *, format: str, offsets: NDArray[np.float32] | None = None) -> None:
        spec = model.spec
        self.most_tokens = spec.positions
        self.acceptance = Acceptance(spec.passes)
        super().__init__(model, threads, format=format)
        layers, heads = (sum(s.rows * s.row_bytes for s in of) for of in (self._pass_streams(), self._heads()))
        self.length = DraftLength(spec.passes, heads / spec.passes / layers)
        self._given: tuple[NDArray[np.int32], bool] | None = None
        self._frame = 0
        self._told = (0, 0)
        offsets = load(model) if offsets is None else offsets
        if offsets is not None:
            if offsets.ndim != 3 or offsets.shape[::2] != (spec.passes, spec.hidden) or not np.isfinite(offsets).all():
                raise BadInputError(f"offsets have shape {list(offsets.shape)} or are not finite")
            self._point(p.OFFSETS, np.ascontiguousarray(offsets, np.float32))
            self._plan[p.OFFSET_DEPTHS] = offsets.shape[1]

    @contextmanager
    def drafting(self, drafts: NDArray[np.int32], *, controlled: bool = False) -> Iterator[None]:
        """Within, drafts are these and not those of the draft heads: what a test or a curve needs of a drafter.

        Args:
            drafts: ``[F, passes]``; the i-th frame that is predicted within takes row ``i % F``.
            controlled: draft lengths are the controller's, and draft heads are run for nothing but their cost; else
                every pass, the first too, takes in all codes that are left.

        Raises:
            BadInputError: another shape, or codes outside the vocabulary.
        """
        spec = self.model.spec
        if drafts.ndim != 2 or drafts.shape[1] != spec.passes or not len(drafts):
            raise BadInputError(f"drafts have shape {list(drafts.shape)}; [F, {spec.passes}] is wanted")
        if drafts.min() < 0 or drafts.max() >= spec.vocab:
            raise BadInputError(f"drafts hold codes outside 0..{spec.vocab - 1}")
        self._given, self._frame = (np.ascontiguousarray(drafts, np.int32), controlled), 0
        self._plan[p.DRAFTS_GIVEN] = 1
        try:
            yield
        finally:
            self._given = None
            self._plan[p.DRAFTS_GIVEN] = 0

    def streams(self) -> list[WeightStream]:
        """The matrices of one frame in reading order: layers, then heads and draft heads, for every pass."""
        passes, drafts = self.acceptance.recent()
        passes = passes or self.model.spec.passes
        heads = self._heads()
        found = []
        for i in range(passes):
            first, last = (len(heads) * n // passes for n in (i, i + 1))
            drafted = drafts * (i + 1) // passes - drafts * i // passes
            ahead = (heads[(last + n) % len(heads)] for n in range(drafted))
            found += [*self._pass_streams(), *heads[first:last], *ahead]
        return found

    def last_frame(self) -> DraftedFrame:
        """What the passes of the latest frame took in. Its codes are not known here: ``fed`` is what was fed back."""
        return self._last

    def _run(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], forced: Any, *rest: Any) -> Any:
        made, taken = self._lengths()
        arrays = self._arrays
        arrays[p.DRAFTED][:] = made, taken
        arrays[p.LAYER_TIMES][:] = 0
        if self._given is not None:
            arrays[p.DRAFTS][:] = self._given[0][self._frame % len(self._given[0])]
            self._frame += 1
        codes = super()._run(hidden, cb0, forced, *rest)
        times = arrays[p.LAYER_TIMES]
        self._last = DraftedFrame(
            np.flatnonzero(times[:, 0]),
            made,
            taken,
            arrays[p.DRAFTS].copy(),
            (codes if forced is None else forced)[0].copy(),
            times[:, 1] - times[:, 0],
        )
        if self._given is None or self._given[1]:
            self._learn(self._last)
        return codes

    def _lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._given is None or self._given[1]:
            return self.length.lengths()
        passes = self.model.spec.passes
        return np.zeros(passes, np.int64), np.arange(passes - 1, -1, -1)

    def _learn(self, frame: DraftedFrame) -> None:
        self.length.learn(frame)
        self.acceptance.count(frame)
        told = self.acceptance.recent()
        if told != self._told:
            self._told = told
            self.passes_per_frame = told[0]
            self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())

    def _pass_streams(self) -> list[WeightStream]:
        return [*self._weights.projection_stream, *self._weights.layer_streams]

    def _heads(self) -> list[WeightStream]:
        return self._weights.head_streams

    def _part_bytes(self) -> NDArray[np.int64]:
        found = self._weights.part_bytes(len(self._last.begins))
        made, heads = self._last.made, self._heads()
        drafted = [heads[c] for g in self._last.begins.tolist() for c in range(g, g + int(made[g]))]
        found[tracing.HEAD] += sum(s.rows * s.row_bytes for s in drafted)
        return found
