"""What passes over several tokens take beside one, by their own times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from cplab.speculation.drafted_frame import DraftedFrame

#: A further token's cost, in passes, before it was ever timed.
_PER_TOKEN = 0.04
_TIMES_KEPT = 31
#: Frames after which one time of a token count that no pass had is forgotten: a bad one must not stay for ever.
_FORGOTTEN_AFTER = 8


def lower_quartile(times: Iterable[float]) -> float:
    """A time that a quarter of all are below: what others did to the machine is in the longer ones.

    numpy's percentile takes longer than the rest of a controller.
    """
    ordered = sorted(times)
    return float(ordered[len(ordered) // 4])


class TokenCosts:
    """Times of passes, by their tokens.

    Args:
        most: tokens of a pass at most; longer ones are not looked at.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._frame = 0
        self._times: list[deque[int]] = [deque(maxlen=_TIMES_KEPT) for _ in range(most + 1)]

    def learn(self, frame: DraftedFrame) -> None:
        """Take in the times of a frame's passes."""
        self._frame += 1
        ran = {g: int(frame.taken[g]) + (2 if g == 0 else 1) for g in frame.begins.tolist()}
        if self._frame % _FORGOTTEN_AFTER == 0:
            for tokens, times in enumerate(self._times):
                if times and tokens not in ran.values():
                    times.popleft()
        for g, tokens in ran.items():
            if tokens <= self.most:
                self._times[tokens].append(int(frame.layer_ns[g]))

    def timed(self, tokens: int) -> bool:
        """Whether a pass over so many tokens was seen."""
        return bool(self._times[tokens])

    @property
    def one_ns(self) -> float:
        """Nanoseconds of a pass over one token; 1 before any was seen."""
        known = self._known()
        least = min(known, default=1)
        return known.get(least, 1.0) / (1 + _PER_TOKEN * (least - 1))

    def costs(self) -> NDArray[np.float64]:
        """``[most + 1]``: passes over 0, 1, 2, ... tokens beside one over a single token (0 stands for nothing)."""
        known = {1: 1.0} | {tokens: ns / self.one_ns for tokens, ns in self._known().items()}
        counts = sorted(known)
        costs = np.interp(np.arange(self.most + 1), counts, [known[tokens] for tokens in counts])
        last = counts[-1]
        slope = max(_PER_TOKEN, (costs[last] - 1) / max(last - 1, 1))  # over all: times go up in steps
        costs[last:] += slope * np.arange(self.most + 1 - last)
        rising: NDArray[np.float64] = np.maximum.accumulate(costs)
        return rising

    def _known(self) -> dict[int, float]:
        return {tokens: lower_quartile(times) for tokens, times in enumerate(self._times) if times}
