"""Whether what was timed is what was right: the codes of each timed call, against what they must be.

Of tiers ``exact`` and ``codes`` they are the golden's. An engine of tier ``quality`` says codes of its own; they must
be those that the same engine says with a trace, called again after the timing, from finite logits of which each code is
the largest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from cplab.golden import Golden
    from cplab.variant import CodePredictor, Tier


class TimedCodes:
    """Collects the codes of timed calls.

    Args:
        predictor: what is timed.
        golden: whose frames it is called on.
        tier: what its codes are held against.
    """

    def __init__(self, predictor: CodePredictor, golden: Golden, tier: Tier) -> None:
        self.predictor, self.golden, self.own = predictor, golden, tier == "quality"
        self._given: list[tuple[list[int], NDArray[Any]]] = []

    def add(self, frames: list[int], codes: Any) -> None:
        """Keep what a call on golden frames returned."""
        self._given.append((frames, np.array(np.asarray(codes).view(np.ndarray))))

    def wrong(self) -> str:
        """What is wrong with the first call that has other codes than it must, or ""; call it after the timing."""
        retold: dict[int, NDArray[np.int32] | None] = {}
        whose = "the golden's" if not self.own else "its own with a trace"
        for number, (frames, codes) in enumerate(self._given):
            which = "first call" if number == 0 else "timed call"
            for b, frame in enumerate(frames):
                if self.own and frame not in retold:
                    retold[frame] = self._retold(frame)
                wanted = retold[frame] if self.own else self.golden.codes[frame : frame + 1]
                if wanted is None or codes.shape[:1] != (len(frames),) or codes[b : b + 1].tolist() != wanted.tolist():
                    place = f" as number {b} of {len(frames)} at once" if len(frames) > 1 else ""
                    return f"frame {frame}{place}: the {which} gave other codes than {whose}"
        return ""

    def _retold(self, frame: int) -> NDArray[np.int32] | None:
        """Codes of a call with a trace; None where its logits are not finite or say other codes."""
        from cplab.variant import Trace

        part = slice(frame, frame + 1)
        trace = Trace()
        codes = self.predictor.predict(self.golden.hidden[part].copy(), self.golden.cb0_embed[part].copy(), trace=trace)
        if trace.logits is None or not np.isfinite(trace.logits).all():
            return None
        return codes if np.array_equal(trace.logits.argmax(-1), codes) else None
