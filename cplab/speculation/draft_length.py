"""How many drafts each pass is given: what pays by what is known so far, within what may be lost.

Two things are learnt, frame by frame: how often a draft holds, by codebook and by how far ahead it lies, and what
passes over several tokens take beside one (their own times: no machine is like another). A pass of k drafts is expected
to give ``E = 1 + p1 + p1 p2 + ...`` codes and to take ``tokens(1 + k) + (k + E) heads``; the k with the most codes a
time is taken. Nothing of this has a part in what the codes are.

Where drafts fail, estimates fall within some frames. Until then, and for whatever makes them wrong, an account bounds
the loss: each frame pays in a share of what a plain frame costs, and what speculation saves; a pass is given drafts
only as far as the account covers all of them being wrong. So the time lost to a plain decoder is never more than that
share, as far as costs are known. Where no drafts are taken in, a few are still made and compared, at the price of a
head each, to learn whether they would hold.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from cplab.speculation.drafted_frame import DraftedFrame

#: Share of a plain frame's cost that a frame may lose; what costs that are known badly add stays within twice this.
ALLOWANCE = 0.03
#: What the account holds at most, in plain frames.
_SAVINGS = 1.0
#: Drafts of a pass at most.
MOST_DRAFTS = 7
#: A pass is given drafts only where they promise so much more than none.
_WORTH = 1.02
#: Weight of what an old trial says beside the next newer one, for a depth in all codebooks and in one.
_DEPTH_MEMORY, _CODEBOOK_MEMORY = 0.98, 0.9
#: Trials that an estimate's starting point counts for.
_PRIOR = 4.0
#: Frames that make a draft before every pass, to know something soon; later ones before so many.
_FIRST_FRAMES, _PROBES = 3, 2
#: A further token's cost, in passes, before it was ever timed.
_PER_TOKEN = 0.04
_TIMES_KEPT = 31
#: Frames after which one time of a token count that no pass had is forgotten: a bad one must not stay for ever.
_FORGOTTEN_AFTER = 8


class DraftLength:
    """Draft lengths of frame after frame.

    Args:
        passes: codes of a frame.
        head_share: what a head costs, in one-token passes over the layers.
        most: drafts of a pass at most.
    """

    def __init__(self, passes: int, head_share: float, most: int = MOST_DRAFTS) -> None:
        self.passes, self.head = passes, head_share
        self.most = min(most, passes - 1)
        self.credit = 0.0
        self._frame = 0
        self._depth = np.zeros((2, self.most))  # held, asked
        self._codebook = np.zeros((2, passes, self.most))
        self._times: list[deque[int]] = [deque(maxlen=_TIMES_KEPT) for _ in range(self.most + 3)]

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``made`` and ``taken`` of the next frame, ``[passes]`` each (see `DraftedFrame`)."""
        taken = np.zeros(self.passes, np.int64)
        made = np.zeros(self.passes, np.int64)
        free = self.credit + ALLOWANCE * self.plain_cost()
        probed = self._probed()
        free -= self.head * len(probed)
        costs = self.costs()
        worst = self._worst(costs)
        tried = False  # passes of a length that was never timed: one a frame
        for g, wanted in enumerate(self._wanted(costs).tolist()):
            k = wanted
            while k and (worst[k] > free or (tried and not self._times[k + 1])):
                k -= 1
            tried = tried or not self._times[k + 1]
            taken[g] = k
            free -= worst[k]
        made[:] = taken
        for g in probed:
            made[g] = min(taken[g] + 1, self.passes - 1 - g, self.most)
        return made, taken

    def learn(self, frame: DraftedFrame) -> None:
        """Take in what became of a frame."""
        self._frame += 1
        costs = self.costs()
        self._forget(frame)
        spent = self.head * (self.passes + frame.draft_heads)
        for g in frame.begins.tolist():
            tokens = int(frame.taken[g]) + (2 if g == 0 else 1)
            if tokens < len(self._times):
                self._times[tokens].append(int(frame.layer_ns[g]))
            spent += costs[min(int(frame.taken[g]) + 1, self.most + 1)]
            for depth, held in enumerate(frame.verdicts(g)[: self.most]):
                for counts, memory in (
                    (self._depth[:, depth], _DEPTH_MEMORY),
                    (self._codebook[:, g, depth], _CODEBOOK_MEMORY),
                ):
                    counts *= memory
                    counts += held, 1
        plain = self.plain_cost()
        self.credit = min(_SAVINGS * plain, self.credit + (1 + ALLOWANCE) * plain - spent)

    def _forget(self, frame: DraftedFrame) -> None:
        if self._frame % _FORGOTTEN_AFTER == 0:
            seen = {int(frame.taken[g]) + (2 if g == 0 else 1) for g in frame.begins.tolist()}
            for tokens, times in enumerate(self._times):
                if times and tokens not in seen:
                    times.popleft()

    def plain_cost(self) -> float:
        """A plain frame, in one-token passes over the layers."""
        return self.passes * (1 + self.head)

    def costs(self) -> NDArray[np.float64]:
        """``[most + 2]``: passes over 0, 1, 2, ... tokens beside one over a single token (0 stands for nothing)."""
        known = {tokens: float(np.percentile(times, 25)) for tokens, times in enumerate(self._times) if times}
        costs = np.ones(self.most + 2)
        if not known:
            costs[1:] += _PER_TOKEN * np.arange(self.most + 1)
            return costs
        least = min(known)
        one = known[least] / (1 + _PER_TOKEN * (least - 1))
        slope = _PER_TOKEN
        for tokens in range(2, self.most + 2):
            before = costs[tokens - 1]
            costs[tokens] = max(before, known[tokens] / one) if tokens in known else before + slope
            slope = max(_PER_TOKEN, costs[tokens] - before)
        return costs

    def chances(self) -> NDArray[np.float64]:
        """``[passes, most]``: how likely the draft at each depth of each pass holds, those before it given."""
        chances = np.empty((self.passes, self.most))
        before = 0.0
        for depth in range(self.most):
            held, asked = self._depth[:, depth]
            before = (held + _PRIOR * before) / (asked + _PRIOR)
            held_here, asked_here = self._codebook[:, :, depth]
            chances[:, depth] = (held_here + _PRIOR * before) / (asked_here + _PRIOR)
        return chances

    def _worst(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[most + 1]``: what a pass of so many drafts loses where none holds; untimed tokens count as passes."""
        tokens = costs[1:].copy()
        for k in range(1, self.most + 1):
            if not self._times[k + 1]:
                tokens[k] = tokens[k - 1] + 1
        lost: NDArray[np.float64] = np.maximum.accumulate(tokens) - tokens[0] + self.head * np.arange(self.most + 1)
        return lost

    def _wanted(self, costs: NDArray[np.float64]) -> NDArray[np.int64]:
        """``[passes]``: drafts with the most codes a time; none for the first pass, before which nothing is known."""
        codes = 1 + np.cumsum(np.cumprod(self.chances(), axis=1), axis=1)
        codes = np.concatenate([np.ones((self.passes, 1)), codes], axis=1)
        drafts = np.arange(self.most + 1)
        rates = codes / (costs[1:] + self.head * (drafts + codes))
        rates[drafts > self.passes - 1 - np.arange(self.passes)[:, None]] = 0
        best = np.argmax(rates, axis=1)
        pays = rates[np.arange(self.passes), best] > _WORTH * rates[:, 0]
        wanted: NDArray[np.int64] = np.where(pays, best, 0)
        wanted[0] = 0
        return wanted

    def _probed(self) -> list[int]:
        """Passes before which one draft more is made than taken in; the last pass has no use for any."""
        places = self.passes - 2
        if places < 1:
            return []
        if self._frame < _FIRST_FRAMES:
            return list(range(1, places + 1))
        return sorted({1 + (self._frame * _PROBES + i) % places for i in range(min(_PROBES, places))})
