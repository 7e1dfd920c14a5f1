"""The gate's part: a speculative predictor gives the same bits whatever its drafts are, and takes in those that hold.

How good a variant's own drafts are depends on the model, and on seeded weights hardly one holds: then verifying is
hardly tried. So drafts are handed in: all right (one pass is enough), all wrong (none may slip through), and wrong at
one depth alone, each in turn: what comes after it is right again, and still must not be believed, since it follows from
another prefix. Where codes are drawn, right is what is drawn, and the most likely code is not.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, CplabError
from cplab.golden import Golden, row_digests
from cplab.sampling import Noise, Sampling
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.variant import CodePredictor, Trace

Codes = NDArray[np.int32]

#: Hot, so that what is drawn is not what is likeliest.
_HOT = Sampling(seed=7, temperature=2.5, top_k=None)


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
    judge = _Judge(predictor, golden)
    passes = golden.codes.shape[1]
    right, wrong = golden.codes[:frames], (golden.codes[:frames] + 1) % vocab
    greedy = [_Wanted(golden.codes[i], golden.digests[i]) for i in (0, 1)]
    try:
        forced = judge.undrafted(1, fed=golden.forced[1])
        drawn = judge.undrafted(1, noise=_HOT)
        return (
            judge.fault(0, right[0], "right drafts", greedy[0], [0])
            or judge.fault(0, wrong[0], "wrong drafts", greedy[0], list(range(passes)))
            or next((fault for depth in range(passes - 1) if (fault := judge.wrong_at(depth, vocab, greedy[0]))), "")
            or judge.fault(1, golden.forced[1], "right drafts of forced codes", forced, [0], fed=golden.forced[1])
            or judge.fault(1, right[1], "drafts that are not the forced codes", forced, None, fed=golden.forced[1])
            or judge.fault(1, drawn.codes, "right drafts of drawn codes", drawn, [0], noise=_HOT)
            or judge.fault(1, right[1], "the likeliest codes as drafts of drawn ones", drawn, None, noise=_HOT)
            or judge.together(np.stack([wrong[0], right[1], right[0]]))
        )
    except CplabError as error:
        return f"with drafts handed in: {error}"


@dataclass(frozen=True, slots=True)
class _Wanted:
    """``codes [passes]`` and ``digests [passes, 16]`` of the logits of one frame."""

    codes: Codes
    digests: NDArray[np.uint8]


class _Judge:
    def __init__(self, predictor: TakesDrafts, golden: Golden) -> None:
        self.predictor, self.golden = predictor, golden

    def undrafted(self, i: int, *, fed: Codes | None = None, noise: Noise | None = None) -> _Wanted:
        """Frame i as the predictor gives it with nothing handed in; other checks say whether it is right."""
        golden, trace = self.golden, Trace()
        part = slice(i, i + 1)
        hidden, cb0 = golden.hidden[part].copy(), golden.cb0_embed[part].copy()
        codes = self.predictor.predict(hidden, cb0, forced=None if fed is None else fed[None], trace=trace, noise=noise)
        if trace.logits is None:
            raise BadInputError("the variant gives no logits to compare")
        return _Wanted(np.asarray(codes)[0].copy(), row_digests(np.asarray(trace.logits))[0])

    def wrong_at(self, depth: int, vocab: int, wanted: _Wanted) -> str:
        """Frame 0 with every draft right but one; draft 0 is of the first pass, which takes in drafts here."""
        drafts = wanted.codes.copy()
        drafts[depth] = (drafts[depth] + 1) % vocab
        return self.fault(0, drafts, f"the draft of code {depth} wrong", wanted, [0, depth + 1])

    def fault(
        self,
        i: int,
        drafts: Codes,
        what: str,
        wanted: _Wanted,
        passes: list[int] | None,
        *,
        fed: Codes | None = None,
        noise: Noise | None = None,
    ) -> str:
        """Frame i with ``drafts [passes]``: what is not as ``wanted``, or passes that began with other codes."""
        with self.predictor.drafting(drafts[None]):
            found = self.undrafted(i, fed=fed, noise=noise)
        same = (found.digests == wanted.digests).all(axis=-1)
        if not same.all():
            return f"frame {i}, {what}: other bits at code {int(np.argmin(same))}"
        unequal = found.codes != wanted.codes
        if unequal.any():
            return f"frame {i}, {what}: another code {int(np.argmax(unequal))}"
        begins = self.predictor.last_frame().begins.tolist()
        if passes is not None and begins != passes:
            return f"frame {i}, {what}: passes began with codes {begins} and not with {passes}"
        return ""

    def together(self, drafts: Codes) -> str:
        """Frames 0, 1, 0 in one call, each with drafts of its own."""
        golden, members = self.golden, [0, 1, 0]
        with self.predictor.drafting(drafts):
            codes = self.predictor.predict(golden.hidden[members], golden.cb0_embed[members])
        same = (np.asarray(codes) == golden.codes[members]).all(axis=1)
        return "" if same.all() else f"frame {int(np.argmin(same))} of 3 at once, drafts handed in: other codes"
