"""Speculation on machines with known costs, run by the controller, and what could be had at best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from cplab.speculation.draft_length import MOST_DRAFTS, DraftLength
from cplab.speculation.drafted_frame import DraftedFrame
from cplab.speculation.drafting_heads import HeadCost
from cplab.speculation.drafting_model import ModelCost

PASSES, MOST = 15, MOST_DRAFTS


@dataclass(frozen=True)
class Costs:
    """What things cost, in passes with one token.

    Attributes:
        tokens: passes over 0, 1, 2, ... tokens.
        head: a head.
        draft: a draft: a head, or a pass of a drafting model with its head.
        catching_up: each token more that a drafting model takes in before its first draft for a pass.
        by_bytes: a drafting model's pass as its bytes have it; None where heads draft.
    """

    tokens: tuple[float, ...]
    head: float = 0.027
    draft: float = 0.027
    catching_up: float = 0.0
    by_bytes: float | None = None

    @property
    def plain(self) -> float:
        """A frame of the plain decoder."""
        return self.tokens[2] + PASSES - 1 + self.head * PASSES

    def fresh(self):
        """What a controller knows of drafts before it has seen any."""
        return HeadCost(self.head) if self.by_bytes is None else ModelCost(self.by_bytes)


class Machine:
    """Frames with these costs; ``right(frame, code)`` says whether a draft of a code holds."""

    def __init__(self, right, costs):
        self.right, self.costs = right, costs
        self.length = DraftLength(PASSES, costs.head, costs.fresh(), MOST)
        self.spent, self.passes = [], []

    def run(self, frames):
        for _ in range(frames):
            frame = self._frame(self.length.lengths())
            self.length.learn(frame)
            drafts = self.costs.draft * frame.drafts_made + self.costs.catching_up * frame.tokens_behind
            self.spent.append(frame.layer_ns.sum() / 1e6 + self.costs.head * PASSES + drafts)
            self.passes.append(len(frame.begins))
        return self

    def speed(self, since):
        """Times as fast as the plain decoder, over the frames from one on."""
        return len(self.spent[since:]) * self.costs.plain / sum(self.spent[since:])

    def lost(self):
        """``[frames]``: what was lost so far to the plain decoder, as a share of its time so far."""
        plain = self.costs.plain * np.arange(1, len(self.spent) + 1)
        return np.cumsum(self.spent) / plain - 1

    def _frame(self, wanted):
        number = len(self.spent)
        holds = [self.right(number, code) for code in range(PASSES)]
        made, taken = wanted.made.copy(), wanted.taken.copy()
        begins, g, rejectable = [], 0, wanted.rejectable
        while g < PASSES:
            if taken[g] > rejectable:
                taken[g] = rejectable
                made[g] = min(made[g], taken[g])
            begins.append(g)
            accepted = 0
            while accepted < taken[g] and holds[g + accepted]:
                accepted += 1
            rejectable -= taken[g] - accepted
            g += accepted + 1
        drafts = np.tile(np.where(holds, 0, 1), (PASSES, 1)).astype(np.int32)
        layer_ns, draft_ns = np.zeros(PASSES, np.int64), np.zeros((PASSES, 2), np.int64)
        layer_ns[begins] = [1_000_000 * self.costs.tokens[int(taken[g]) + (2 if g == 0 else 1)] for g in begins]
        frame = DraftedFrame(np.array(begins), made, taken, drafts, np.zeros(PASSES, np.int32), layer_ns, draft_ns)
        for g, tokens in frame.caught_up():
            first = self.costs.draft + self.costs.catching_up * (tokens - 1)
            draft_ns[g] = 1_000_000 * first, 1_000_000 * self.costs.draft * (made[g] - 1)
        return frame


def random_drafts(share, seed=0):
    """Drafts of which each holds with the same probability."""
    draws = np.random.default_rng(seed).random((2000, PASSES))
    return lambda frame, code: bool(draws[frame, code] < share)


def best_speed(costs, share):
    """What nobody can do better than: the fewest expected passes, tried over all drafts of all passes.

    Each draft holds with probability ``share``, which the one who chooses knows.
    """

    @cache
    def left(g, seen):
        if g >= PASSES:
            return 0.0
        return min(pass_of(g, seen, k) for k in range(min(MOST, PASSES - 1 - g) + 1) if not (k and g < earliest))

    def pass_of(g, seen, k):
        drafts = k * costs.draft + (costs.catching_up * (g + 1 - seen) if k else 0)
        spent = drafts + costs.tokens[k + (2 if g == 0 else 1)]
        now = g + k + 1 if k else seen
        for accepted in range(k + 1):
            likely = share**accepted * (1 - share if accepted < k else 1)
            following = g + accepted + 1
            spent += likely * ((accepted + 1) * costs.head + left(following, min(now, following + 1)))
        return spent

    earliest = costs.fresh().earliest
    return costs.plain / left(0, 0)
