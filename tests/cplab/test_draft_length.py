"""Draft lengths follow what drafts are worth, and lose no more than was allowed whatever drafts do."""

from __future__ import annotations

import numpy as np
import pytest

from cplab.speculation.draft_length import ALLOWANCE, DraftLength
from cplab.speculation.drafted_frame import DraftedFrame

PASSES, HEAD = 15, 0.027
#: Passes over 0, 1, 2, ... tokens beside one: memory-bound up to four, then arithmetic.
COSTS = np.array([0, 1, 1.03, 1.06, 1.08, 1.4, 1.5, 1.6, 1.73, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.1, 3.2])


class Machine:
    """Frames on a machine with known costs; ``right(frame, code)`` says whether a draft of a code holds."""

    def __init__(self, right, costs=COSTS):
        self.right, self.costs, self.length = right, costs, DraftLength(PASSES, HEAD)
        self.spent, self.passes = [], []

    def run(self, frames):
        for _ in range(frames):
            number = len(self.spent)
            made, taken = self.length.lengths()
            fed = np.zeros(PASSES, np.int32)
            drafts = np.zeros((PASSES, PASSES), np.int32)
            for g in range(PASSES):
                drafts[g] = [0 if self.right(number, code) else 1 for code in range(PASSES)]
            begins, g = [], 0
            while g < PASSES:
                begins.append(g)
                accepted = 0
                while accepted < taken[g] and drafts[g, g + accepted] == 0:
                    accepted += 1
                g += accepted + 1
            tokens = [int(taken[g]) + (2 if g == 0 else 1) for g in begins]
            layer_ns = np.zeros(PASSES, np.int64)
            layer_ns[begins] = [1_000_000 * self.costs[t] for t in tokens]
            frame = DraftedFrame(np.array(begins), made, taken, drafts, fed, layer_ns)
            self.length.learn(frame)
            self.spent.append(layer_ns.sum() / 1e6 + HEAD * (PASSES + frame.draft_heads))
            self.passes.append(len(begins))
        return self

    @property
    def plain(self):
        return self.costs[2] + PASSES - 1 + HEAD * PASSES


def random_drafts(share, seed=0):
    draws = np.random.default_rng(seed).random((2000, PASSES))
    return lambda frame, code: bool(draws[frame, code] < share)


def test_nothing_accepted_never_loses_five_percent():
    machine = Machine(lambda frame, code: False).run(200)
    assert np.cumsum(machine.spent)[-1] < 1.01 * 200 * machine.plain
    for frames in range(1, 200):
        assert sum(machine.spent[:frames]) <= 1.05 * frames * machine.plain


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.2, 0.3])
def test_little_accepted_never_loses_five_percent_either(share):
    machine = Machine(random_drafts(share)).run(200)
    total = np.cumsum(machine.spent)
    assert (total <= 1.05 * machine.plain * np.arange(1, 201)).all()


@pytest.mark.parametrize("turn", [1, 3, 7, 20])
def test_drafts_that_turn_bad_as_soon_as_they_are_trusted_lose_what_was_saved_and_the_allowance(turn):
    machine = Machine(lambda frame, code: frame // turn % 2 == 0).run(200)
    assert (np.cumsum(machine.spent) <= (1 + ALLOWANCE + 0.02) * machine.plain * np.arange(1, 201)).all()


def test_good_drafts_that_fail_for_good_cost_a_frame_at_most_and_then_three_percent():
    machine = Machine(lambda frame, code: frame < 100).run(300)
    after = np.cumsum(np.array(machine.spent[100:]) - machine.plain)
    assert (after <= machine.plain * (1 + (ALLOWANCE + 0.005) * np.arange(1, 201))).all()
    assert sum(machine.spent[200:]) < 1.01 * 100 * machine.plain


@pytest.mark.parametrize(("share", "speed"), [(0.5, 1.3), (0.7, 1.7), (0.75, 1.85), (0.9, 2.1), (1.0, 2.6)])
def test_drafts_that_hold_are_taken_in(share, speed):
    machine = Machine(random_drafts(share)).run(150)
    assert 100 * machine.plain / sum(machine.spent[50:]) > speed


def test_lengths_stay_where_more_tokens_are_dear():
    machine = Machine(random_drafts(0.8)).run(100)
    _, taken = machine.length.lengths()
    assert set(taken[1:12].tolist()) == {3}, "four tokens are almost free here, and five are not"


def test_where_every_token_costs_a_pass_no_draft_is_taken_in():
    machine = Machine(random_drafts(0.8), costs=np.arange(17.0)).run(100)
    assert sum(machine.passes[60:]) > 0.95 * PASSES * 40
    assert sum(machine.spent) < 1.05 * 100 * machine.plain


def test_drafts_that_become_good_are_noticed():
    machine = Machine(lambda frame, code: frame >= 100).run(220)
    assert sum(machine.passes[50:100]) == 50 * PASSES
    assert sum(machine.passes[190:]) < 30 * 8


def test_one_bad_reading_does_not_stay():
    machine = Machine(random_drafts(0.8))
    machine.run(30)
    for times in machine.length._times[2:]:
        times.clear()
        times.append(400_000_000)  # as if the machine had stood still
    machine.run(120)
    assert sum(machine.passes[-30:]) < 30 * 9


def test_a_draft_never_reaches_beyond_the_last_code():
    length = DraftLength(PASSES, HEAD)
    length._depth[:] = 1000
    length._codebook[:] = 1000
    length.credit = 1000.0
    for times in length._times:
        times.append(1_000_000)  # as if no token cost anything
    made, taken = length.lengths()
    assert taken[0] == made[0] == 0
    assert (taken <= PASSES - 1 - np.arange(PASSES)).all()
    assert (made <= PASSES - 1 - np.arange(PASSES)).all()
    assert taken[1:8].min() > 0


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_few_codes_leave_little_to_draft(passes):
    length = DraftLength(passes, HEAD)
    made, taken = length.lengths()
    assert made.sum() + taken.sum() <= max(0, passes - 2)
