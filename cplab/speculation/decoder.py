"""A decoder that guesses codes and verifies them with one pass over several tokens.

Who guesses is a drafter: the model's own later heads on the hidden state from which the latest code was read
(TensorRT-Edge-LLM describes it; arXiv 2609.37007 adds a learned offset vector for each depth), or the same model in a
format of fewer bytes, code by code. One pass then takes in the known code and its drafts, each at its position, each by
its own embedding table; as long as a draft is what its own head says on its own token, the next token's head gives one
code more. What a wrong draft left in the KV cache is written over before anything sees it.

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
from cplab.model import Model
from cplab.sampling import Draws
from cplab.speculation.acceptance import Acceptance
from cplab.speculation.draft_length import DraftLength, Lengths
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.drafter import Drafter
from cplab.speculation.drafting_heads import DraftingHeads
from cplab.speculation.drafting_model import DraftingModel
from cplab.variant import HEADS, WeightStream


class SpeculativeDecoder(Decoder):
    """See `cplab.variant.CodePredictor`; frames of a batch are predicted one after another.

    ``passes_per_frame``, ``bytes_per_frame`` and ``streams()`` tell of the latest frames, rounded to whole passes and
    whole heads; ``acceptance`` has the counts.

    Args:
        model: the weights.
        threads: team size, 1 or more.
        format: a name of `cplab.formats`.
        drafter: `HEADS`, or a name of `cplab.formats`: the model in that format drafts.
        offsets: of draft heads (`cplab.speculation.drafting_heads.DraftingHeads`).

    Raises:
        BadInputError: offsets that draft heads cannot take.
    """

    frames_at_once = 1

    def __init__(
        self,
        model: Model,
        threads: int,
        *,
        format: str,
        drafter: str = HEADS,
        offsets: NDArray[np.float32] | None = None,
    ) -> None:
        spec = model.spec
        self.most_tokens = spec.positions
        self.acceptance = Acceptance(spec.passes, drafter)
        super().__init__(model, threads, format=format)
        self.drafter: Drafter = (
            DraftingHeads(model, offsets) if drafter == HEADS else DraftingModel(model, threads, format=drafter)
        )
        self.drafter.connect(self._plan, self._weights)
        self.length = self.new_length()
        self._given: tuple[NDArray[np.int32], bool] | None = None
        self._frame = 0
        self._told = (0, 0)

    def new_length(self) -> DraftLength:
        """A controller of draft lengths that has learnt nothing yet."""
        return DraftLength(self.model.spec.passes, self._weights.head_share, self.drafter.cost())

    @contextmanager
    def drafting(self, drafts: NDArray[np.int32], *, controlled: bool = False) -> Iterator[None]:
        """Within, drafts are these and not the drafter's: what a test or a curve needs of a drafter.

        Args:
            drafts: ``[F, passes]``; the i-th frame that is predicted within takes row ``i % F``.
            controlled: draft lengths are the controller's, and the drafter is run for nothing but its cost; else every
                pass, the first too, takes in all codes that are left.

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
        """The matrices of one frame in reading order: for every pass its drafts, then layers and heads."""
        passes, drafts = self.acceptance.recent()
        passes = passes or self.model.spec.passes
        layers, heads = self._weights.pass_streams, self._weights.head_streams
        found = []
        for i in range(passes):
            first, last = (len(heads) * n // passes for n in (i, i + 1))
            for n in range(drafts * (i + 1) // passes - drafts * i // passes):
                found += self.drafter.reads((first + n) % len(heads))
            found += [*layers, *heads[first:last]]
        return found

    def last_frame(self) -> DraftedFrame:
        """What the passes of the latest frame took in. Its codes are not known here: ``fed`` is what was fed back."""
        return self._last

    def _prepare(
        self,
        hidden: NDArray[np.float32],
        cb0: NDArray[np.float32],
        forced: NDArray[np.int32] | None,
        draws: Draws | None,
    ) -> None:
        super()._prepare(hidden, cb0, forced, draws)
        self.drafter.begin(hidden, cb0, draws)

    def _run(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], forced: Any, *rest: Any) -> Any:
        wanted = self._lengths()
        arrays = self._arrays
        arrays[p.DRAFTED][:2] = wanted.made, wanted.taken
        self._plan[p.REJECTABLE] = wanted.rejectable
        arrays[p.LAYER_TIMES][:] = 0
        if self._given is not None:
            arrays[p.DRAFTS][:] = self._given[0][self._frame % len(self._given[0])]
            self._frame += 1
        codes = super()._run(hidden, cb0, forced, *rest)
        times = arrays[p.LAYER_TIMES]
        made, taken = arrays[p.DRAFTED][2:].copy()
        self._last = DraftedFrame(
            np.flatnonzero(times[:, 0]),
            made,
            taken,
            arrays[p.DRAFTS].copy(),
            (codes if forced is None else forced)[0].copy(),
            times[:, 1] - times[:, 0],
            np.diff(arrays[p.DRAFT_TIMES]),
        )
        if self._given is None or self._given[1]:
            self._learn(self._last)
        return codes

    def _lengths(self) -> Lengths:
        if self._given is None or self._given[1]:
            return self.length.lengths()
        passes = self.model.spec.passes
        return Lengths(np.zeros(passes, np.int64), np.arange(passes - 1, -1, -1), passes * passes)

    def _learn(self, frame: DraftedFrame) -> None:
        self.length.learn(frame)
        self.acceptance.count(frame)
        told = self.acceptance.recent()
        if told != self._told:
            self._told = told
            self.passes_per_frame = told[0]
            self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())

    def _part_bytes(self) -> NDArray[np.int64]:
        own = self._weights.part_bytes(len(self._last.begins))
        return own + self.drafter.part_bytes(self._last.drafted_codes)
