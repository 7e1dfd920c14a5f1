"""The gate's part: a speculative predictor gives the same bits whatever its drafts are, and takes in those that hold.

How good a variant's own drafts are depends on the model, and on seeded weights hardly one holds: then verifying is hardly
tried. So drafts are handed in: all right (one pass is enough), all wrong (none may slip through), and wrong at one depth
alone, each in turn: what comes after it is right again, and still must not be believed, since it follows from another
prefix.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError
from cplab.golden import Golden, row_digests
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.variant import CodePredictor, Trace

Codes = NDArray[np.int32]


@runtime_checkable
class TakesDrafts(CodePredictor, Protocol):
    """A predictor to which drafts can be handed in; see `cplab.speculation.decoder`."""

    def drafting(self, drafts: NDArray[np.int32], *, controlled: bool = False) -> AbstractContextManager[None]:
        """Within, drafts are these, and every pass takes in all that are left."""
        ...

    def last_frame(self) -> DraftedFrame:
        """What the passes of the latest frame took in."""
        ...


def speculation_fault(predictor: CodePredictor, golden: Golden, vocab: int, frames: int) -> str:
    """The first thing that drafts change, in a sentence, or "".

    Args:
        predictor: what is judged; one that takes no drafts has no fault.
        golden: of its weights in its arithmetic.
        vocab: codes in a codebook.
        frames: of the golden, that may be used; two are.
    """
    if not isinstance(predictor, TakesDrafts):
        return ""
    judge = _Judge(predictor, golden, vocab)
    passes = golden.codes.shape[1]
    right, wrong = golden.codes[:frames], (golden.codes[:frames] + 1) % vocab
    try:
        return (
            judge.alone(0, right, "right drafts", [0])
            or judge.alone(0, wrong, "wrong drafts", list(range(passes)))
            or next((fault for depth in range(passes - 1) if (fault := judge.wrong_at(0, depth))), "")
            or judge.alone(1, golden.forced, "right drafts of forced codes", [0], forced=True)
            or judge.alone(1, right, "drafts that are not the forced codes", None, forced=True)
            or judge.together(np.stack([wrong[0], right[1], right[0]]))
        )
    except CplabError as error:
        return f"with drafts handed in: {error}"


class _Judge:
    def __init__(self, predictor: TakesDrafts, golden: Golden, vocab: int) -> None:
        self.predictor, self.golden, self.vocab = predictor, golden, vocab

    def wrong_at(self, i: int, depth: int) -> str:
        """Frame i with every draft right but one; draft 0 is of the first pass, which takes in drafts here."""
        drafts = self.golden.codes.copy()
        drafts[i, depth] = (drafts[i, depth] + 1) % self.vocab
        return self.alone(i, drafts, f"the draft of code {depth} wrong", [0, depth + 1])

    def alone(self, i: int, drafts: Codes, what: str, passes: list[int] | None, *, forced: bool = False) -> str:
        """Frame i by itself with row i of ``drafts``, and the passes that it may take."""
        part = slice(i, i + 1)
        fault = self._unlike(part, drafts[part], forced, what)
        begins = self.predictor.last_frame().begins.tolist()
        if not fault and passes is not None and begins != passes:
            return f"frame {i}, {what}: passes began with codes {begins} and not with {passes}"
        return fault

    def together(self, drafts: Codes) -> str:
        """Frames 0, 1, 0 in one call, each with drafts of its own."""
        golden = self.golden
        with self.predictor.drafting(drafts):
            members = [0, 1, 0]
            codes = self.predictor.predict(golden.hidden[members], golden.cb0_embed[members])
        same = (np.asarray(codes) == golden.codes[members]).all(axis=1)
        return "" if same.all() else f"frame {int(np.argmin(same))} of 3 at once, drafts handed in: other codes"

    def _unlike(self, part: slice, drafts: Codes, forced: bool, what: str) -> str:
        golden, trace = self.golden, Trace()
        fed = golden.forced[part].copy() if forced else None
        hidden, cb0 = golden.hidden[part].copy(), golden.cb0_embed[part].copy()
        with self.predictor.drafting(drafts):
            codes = self.predictor.predict(hidden, cb0, forced=fed, trace=trace)
        digests = (golden.forced_digests if forced else golden.digests)[part]
        found = np.asarray(codes)
        if trace.logits is None:
            return f"frame {part.start}, {what}: no logits to compare"
        same = (row_digests(np.asarray(trace.logits)) == digests).all(axis=-1)[0]
        if not same.all():
            return f"frame {part.start}, {what}: other bits at code {int(np.argmin(same))}"
        unequal = found[0] != (np.argmax(trace.logits[0], axis=-1) if forced else golden.codes[part.start])
        return f"frame {part.start}, {what}: another code {int(np.argmax(unequal))}" if unequal.any() else ""
