"""Draft lengths follow what drafts are worth, and lose no more than was allowed whatever drafts do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from speculating_machines import PASSES, Costs, Machine, best_speed, random_drafts

from cplab.speculation.draft_length import ALLOWANCE, MOST_DRAFTS, DraftLength
from cplab.speculation.drafting_heads import HeadCost
from cplab.speculation.drafting_model import ModelCost

#: Passes over several tokens: of BF16 bound by memory up to four, then by arithmetic; of bf12, whose decoding is work
#: beside reading, dearer from the second token on.
BF16 = (0, 1, 1.03, 1.06, 1.08, 1.4, 1.5, 1.6, 1.73, 2.0, 2.2, 2.4, 2.6, 2.8, 3.0, 3.1, 3.2)
BF12 = (0, 1, 1.11, 1.22, 1.33, 1.7, 2.0, 2.3, 2.5, 2.8, 3.0, 3.3, 3.5, 3.7, 4.0, 4.2, 4.4)
HEADS = Costs(BF16)
MACHINES = {
    "heads": HEADS,
    "heads, bf12": Costs(BF12, head=0.036, draft=0.036),
    "heads, every token a pass": Costs(tuple(range(18))),
    "q4_0": Costs(BF16, draft=0.37, catching_up=0.03, by_bytes=0.28),
    "q8_0": Costs(BF16, draft=0.58, catching_up=0.03, by_bytes=0.53),
    "q4_0, bf12": Costs(BF12, head=0.036, draft=0.5, catching_up=0.04, by_bytes=0.375),
    "a drafter thrice as dear as its bytes": Costs(BF16, draft=0.84, catching_up=0.1, by_bytes=0.28),
}
#: Share of the time that trying and comparing may cost.
TRYING = 0.015
#: How far the share of drafts that hold may be underrated: estimates start from four made-up trials, and a dear drafter
#: has about a dozen real ones here.
UNSURE = 0.08

every_machine = pytest.mark.parametrize("costs", MACHINES.values(), ids=MACHINES.keys())


# -- what is lost -----------------------------------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("share", [0, 0.02, 0.05, 0.1, 0.2, 0.3])
def test_little_accepted_never_loses_five_percent(costs, share):
    machine = Machine(random_drafts(share), costs).run(200)
    assert machine.lost().max() <= 0.05


@every_machine
def test_nothing_accepted_loses_hardly_anything_in_the_end(costs):
    machine = Machine(lambda frame, code: False, costs).run(200)
    assert machine.lost()[-1] < TRYING
    assert machine.passes == [PASSES] * 200


@every_machine
@pytest.mark.parametrize("turn", [1, 3, 7, 20])
def test_drafts_that_turn_bad_as_soon_as_they_are_trusted_lose_what_was_saved_and_the_allowance(costs, turn):
    machine = Machine(lambda frame, code: frame // turn % 2 == 0, costs).run(200)
    assert machine.lost().max() <= 0.05


@every_machine
def test_good_drafts_that_fail_for_good_cost_a_frame_at_most_and_then_three_percent(costs):
    machine = Machine(lambda frame, code: frame < 100, costs).run(300)
    after = np.cumsum(np.array(machine.spent[100:]) - costs.plain)
    assert (after <= costs.plain * (1 + (ALLOWANCE + 0.005) * np.arange(1, 201))).all()
    assert machine.speed(since=200) > 1 - TRYING


@pytest.mark.parametrize("wrong_from", [0, 3, 8])
def test_a_frame_whose_drafts_fail_is_plain_from_then_on(wrong_from):
    costs = MACHINES["q8_0"]
    machine = Machine(lambda frame, code: frame < 100 or code < wrong_from, costs).run(100)
    machine.length.credit = 2.0
    allowed = machine.length.credit + ALLOWANCE * costs.plain
    wanted = machine.length.lengths()
    assert wanted.rejectable * costs.draft <= allowed
    assert wanted.taken.sum() > 2 * wanted.rejectable, "far more is wanted than may fail, as it never did"
    machine.run(1)
    assert machine.spent[-1] - costs.plain <= allowed


# -- what is gained ---------------------------------------------------------------------------------------------------


@every_machine
@pytest.mark.parametrize("share", [0.1, 0.3, 0.43, 0.5, 0.7, 0.8, 0.92, 1.0])
def test_what_is_best_for_somewhat_worse_drafts_is_always_had(costs, share):
    machine = Machine(random_drafts(share), costs).run(150)
    assert machine.speed(since=50) > (1 - TRYING) * best_speed(costs, max(0, share - UNSURE))


def test_the_best_is_what_can_be_worked_out_by_hand():
    free_tokens = Costs((0.0, *[1.0] * 17), head=0, draft=0)
    assert best_speed(free_tokens, 0) == 1
    # Heads: a pass without drafts, then 14 codes in passes of eight and six.
    assert best_speed(free_tokens, 1) == pytest.approx(15 / 3)
    # A model: fifteen codes in passes of eight and seven, with thirteen drafts.
    model = replace(free_tokens, draft=0.5, by_bytes=0.5)
    assert best_speed(model, 1) == pytest.approx(15 / (2 + 13 / 2))
    # One draft pays where it holds more often than it costs; no draft is better than that here.
    for share, pays in ((0.49, False), (0.51, True)):
        assert (best_speed(model, share) > 1) is pays


def test_lengths_stay_where_more_tokens_are_dear():
    machine = Machine(random_drafts(0.8), HEADS).run(100)
    taken = machine.length.lengths().taken
    assert set(taken[1:12].tolist()) == {3}, "four tokens are almost free here, and five are not"


@pytest.mark.parametrize(
    ("machine", "frames"), [("heads", 10), ("heads, bf12", 20), ("q4_0", 60), ("q8_0", 200), ("q4_0, bf12", 200)]
)
def test_drafts_that_become_good_are_noticed(machine, frames):
    """A model's are noticed late: to try one costs a third or half of a pass, and that has a 200th of the time."""
    costs = MACHINES[machine]
    found = Machine(lambda frame, code: frame >= 100, costs).run(100 + frames + 30)
    assert found.passes[50:100] == [PASSES] * 50
    assert max(found.passes[-30:]) < PASSES / 2


def test_one_bad_reading_does_not_stay():
    machine = Machine(random_drafts(0.8), HEADS).run(30)
    for times in machine.length.tokens._times[2:]:
        times.clear()
        times.append(400_000_000)  # as if the machine had stood still
    machine.run(150)
    assert machine.speed(since=150) > (1 - TRYING) * best_speed(HEADS, 0.8 - UNSURE)


@pytest.mark.parametrize("kept", ["_drafts", "_tokens"])
def test_one_bad_reading_of_a_drafter_does_not_stay(kept):
    costs = MACHINES["q4_0"]
    machine = Machine(random_drafts(0.9), costs)
    getattr(machine.length.drafts, kept).append(20.0)  # its first pass, while its weights came from the disk
    machine.run(150)
    assert machine.speed(since=100) > (1 - TRYING) * best_speed(costs, 0.9 - UNSURE)


# -- what there is to draft -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafts", [HeadCost(0.027), ModelCost(0.28)], ids=["heads", "model"])
def test_a_draft_never_reaches_beyond_the_last_code(drafts):
    length = DraftLength(PASSES, 0.027, drafts)
    length._depth[:] = 1000
    length._codebook[:] = 1000
    length.credit = 1000.0
    for times in length.tokens._times:
        times.append(1_000_000)  # as if no token cost anything
    wanted = length.lengths()
    left = PASSES - 1 - np.arange(PASSES)
    assert (wanted.taken[: drafts.earliest] == 0).all()
    assert (wanted.made[: drafts.earliest] == 0).all()
    assert (wanted.taken[drafts.earliest :] == np.minimum(MOST_DRAFTS, left)[drafts.earliest :]).all()
    assert (wanted.made <= left).all()


@pytest.mark.parametrize("drafts", [HeadCost(0.027), ModelCost(0.28)], ids=["heads", "model"])
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_few_codes_leave_little_to_draft(drafts, passes):
    wanted = DraftLength(passes, 0.027, drafts).lengths()
    assert wanted.made.sum() + wanted.taken.sum() <= max(0, passes - 1 - drafts.earliest)
