"""How many drafts each pass is given: what pays by what is known so far, within what may be lost.

Three things are learnt, frame by frame: how often a draft holds, by codebook and by how far ahead it lies; what passes
over several tokens take beside one (their own times: no machine is like another); and what drafts cost
(`cplab.speculation.drafter.DraftCost`). A pass of k drafts is expected to give ``E = 1 + p1 + p1 p2 + ...`` codes and
to take ``tokens(1 + k) + E heads + k drafts``; the k with the most codes a time is taken. Nothing of this has a part in
what the codes are.

Where drafts fail, estimates fall within some frames. Until then, and for whatever makes them wrong, an account bounds
the loss: each frame pays in a share of what a plain frame costs, and what speculation saves, and is given so many
drafts that may fail as the account covers. After as many failures the rest of the frame is plain. So the time lost to
a plain decoder is never more than that share, as far as costs are known. Where no drafts are taken in, one is still
made and compared now and then, to learn whether it would hold.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.drafter import DraftCost
from cplab.speculation.token_costs import TokenCosts

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
#: Trials that what an estimate starts from counts for.
_PRIOR = 4.0
#: Frames that may spend all of their allowance on drafts that are only compared; later ones save up this share.
_FIRST_FRAMES, _PROBE_SHARE = 3, 0.005
#: What they save up at most, in plain frames: a drafting model that has the whole frame to catch up with must fit.
_MOST_FUND = 0.2


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a frame is given.

    Attributes:
        made: ``[passes]``, drafts to make before the pass that begins with each code.
        taken: ``[passes]``, how many of them the pass takes in.
        rejectable: how many that were taken in may fail before no more are.
    """

    made: NDArray[np.int64]
    taken: NDArray[np.int64]
    rejectable: int


class DraftLength:
    """Draft lengths of frame after frame.

    Args:
        passes: codes of a frame.
        head_share: what a head costs, in one-token passes over the layers.
        drafts: what drafts cost, in the same.
        most: drafts of a pass at most.
    """

    def __init__(self, passes: int, head_share: float, drafts: DraftCost, most: int = MOST_DRAFTS) -> None:
        self.passes, self.head, self.drafts = passes, head_share, drafts
        self.most = min(most, passes - 1)
        self.credit = 0.0
        self.tokens = TokenCosts(self.most + 2)
        self._frame = 0
        self._depth = np.zeros((2, self.most))  # held, asked
        self._codebook = np.zeros((2, passes, self.most))
        self._probe, self._probe_fund = 0, 0.0

    def lengths(self) -> Lengths:
        """What the next frame is given."""
        free = self.credit + ALLOWANCE * self.plain_cost()
        costs = self.tokens.costs()
        paying = self._paying(costs)
        probes, price = self._probed([bool(lengths) for lengths in paying], free)
        taken, rejectable = self._covered(paying, self._worst(costs), free - price)
        made = taken.copy()
        for g in probes:
            made[g] = min(taken[g] + 1, self.passes - 1 - g, self.most)
        return Lengths(made, taken, rejectable)

    def learn(self, frame: DraftedFrame) -> None:
        """Take in what became of a frame."""
        self._frame += 1
        self.tokens.learn(frame)
        self.drafts.learn(frame, self.tokens.one_ns)
        costs = self.tokens.costs()
        spent = self.head * self.passes + self.drafts.draft() * frame.drafts_made
        spent += self.drafts.token() * frame.tokens_behind
        for g in frame.begins.tolist():
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
        self._probe_fund = min(self._probe_fund + _PROBE_SHARE * plain, _MOST_FUND * plain)

    def plain_cost(self) -> float:
        """A plain frame, in one-token passes over the layers."""
        return self.passes * (1 + self.head)

    def chances(self) -> NDArray[np.float64]:
        """``[passes, most]``: how likely the draft at each depth of each pass holds, those before it given."""
        chances = np.empty((self.passes, self.most))
        before = self.drafts.prior
        for depth in range(self.most):
            held, asked = self._depth[:, depth]
            before = (held + _PRIOR * before) / (asked + _PRIOR)
            held_here, asked_here = self._codebook[:, :, depth]
            chances[:, depth] = (held_here + _PRIOR * before) / (asked_here + _PRIOR)
        return chances

    def _worst(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """``[most + 1]``: what a pass of so many drafts loses where none holds; untimed tokens count as passes."""
        tokens = costs[1 : self.most + 2].copy()
        for k in range(1, self.most + 1):
            if not self.tokens.timed(k + 1):
                tokens[k] = tokens[k - 1] + 1
        lost: NDArray[np.float64] = np.maximum.accumulate(tokens) - tokens[0]
        return lost + self.drafts.draft() * np.arange(self.most + 1)

    def _covered(
        self, paying: list[list[int]], worst: NDArray[np.float64], free: float
    ) -> tuple[NDArray[np.int64], int]:
        """Of each pass's paying lengths the best that ``free`` covers, and how many drafts may fail.

        A pass whose drafts fail in part loses no more than the failed ones' share of what it loses where all do, as
        long as a draft costs less than the pass that it saves. A length that was never timed is paid for as a whole,
        and tried once a frame, not always in the same place: a pass may be one that is never run.
        """
        taken = np.zeros(self.passes, np.int64)
        share, tried, last = 0.0, 0, -2
        token = self.drafts.token()
        first_try = self._frame % self.passes if self._frame % 2 else 0
        for g, lengths in enumerate(paying):
            behind = token * (g - last - 1)
            may_try = not tried and g >= first_try
            covered = (k for k in lengths if worst[k] + behind <= free and (may_try or self.tokens.timed(k + 1)))
            k = next(covered, 0)
            if not k:
                continue
            free -= behind
            if self.tokens.timed(k + 1):
                share = max(share, worst[k] / k)
            else:
                free -= worst[k]
                tried = k
            taken[g], last = k, g
        return taken, tried + (int(free / share) if share else 0)

    def _paying(self, costs: NDArray[np.float64]) -> list[list[int]]:
        """For each pass the numbers of drafts that pay, the most codes a time first; none where nothing is known."""
        codes = 1 + np.cumsum(np.cumprod(self.chances(), axis=1), axis=1)
        codes = np.concatenate([np.ones((self.passes, 1)), codes], axis=1)
        drafts = np.arange(self.most + 1)
        tokens = np.repeat(costs[None, 1 : self.most + 2], self.passes, axis=0)
        tokens[0] = costs[2:]
        catching_up = np.where(drafts > 0, self.drafts.token(), 0)
        rates = codes / (tokens + self.head * codes + self.drafts.draft() * drafts + catching_up)
        rates[drafts > self.passes - 1 - np.arange(self.passes)[:, None]] = 0
        rates[: self.drafts.earliest, 1:] = 0
        order = np.argsort(-rates, axis=1, kind="stable").tolist()
        counts = (rates > _WORTH * rates[:, :1]).sum(axis=1).tolist()
        return [lengths[:count] for lengths, count in zip(order, counts, strict=True)]

    def _probed(self, drafting: list[bool], free: float) -> tuple[list[int], float]:
        """Passes before which one draft more is made than taken in, in turn, and what that costs.

        The last pass has no use for any.
        """
        earliest = self.drafts.earliest
        places = self.passes - 1 - earliest
        fund = free if self._frame < _FIRST_FRAMES else self._probe_fund
        found: list[int] = []
        price, draft, token = 0.0, self.drafts.draft(), self.drafts.token()
        for _ in range(places):
            g = earliest + self._probe % places
            last = max((h for h in range(g) if drafting[h] or h in found), default=-2)
            one = draft + token * (g - last - 1)
            if price + one > min(fund, free):
                break
            price += one
            found.append(g)
            self._probe += 1
        if self._frame >= _FIRST_FRAMES:
            self._probe_fund -= price
        return found, price
