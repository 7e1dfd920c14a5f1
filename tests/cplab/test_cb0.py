"""CB0 by the official rules: what is barred, what is punished, and how one is drawn with noise that is given."""

from __future__ import annotations

import numpy as np
import pytest

from cplab import Sampling
from cplab import arithmetic_sampling as law
from cplab.cb0 import Rules, drawn, greedy
from cplab.errors import BadInputError, NonFiniteLogitsError

VOCAB, END = 3072, 2150
RULES = Rules.of_vocabulary(VOCAB)


def logits(seed=1, vocab=VOCAB):
    return np.random.default_rng(seed).standard_normal(vocab).astype(np.float32)


def test_special_codes_are_never_chosen_but_the_end_code():
    allowed = np.isfinite(RULES.ruled(logits(), [1, 2]))
    assert allowed.nonzero()[0].tolist() == [*range(2048), END]


@pytest.mark.parametrize("frame", range(4))
def test_two_frames_come_before_the_end(frame):
    row = logits()
    row[END] = 100
    assert (greedy(RULES.ruled(row, list(range(frame)))) == END) == (frame >= 2)


def test_a_code_spoken_twice_is_punished_once_in_the_direction_of_its_sign():
    rules, row = Rules.of_vocabulary(VOCAB, 1.05), logits()
    row[7], row[8] = 2.0, -2.0
    ruled = rules.ruled(row, [7, 8, 7])
    assert ruled[7] == np.float32(2) / np.float32(1.05)
    assert ruled[8] == np.float32(-2) * np.float32(1.05)
    untouched = np.setdiff1d(np.arange(2048), [7, 8])
    assert np.array_equal(ruled[untouched], row[untouched])
    assert np.array_equal(RULES.ruled(row, [7, 8, 7])[:2048], row[:2048])


def test_the_logits_are_left_alone():
    row = logits()
    before = row.copy()
    Rules.of_vocabulary(VOCAB, 1.3).ruled(row, [1, 2, 3])
    assert np.array_equal(row, before)


def test_recorded_rules_are_the_dumps():
    told = {"eos_token_id": 5, "suppress_tokens": [9, 8], "min_new_tokens": 1, "repetition_penalty": 2.0}
    rules = Rules.recorded(told, 10)
    ruled = rules.ruled(np.ones(10, np.float32), [])
    assert np.isinf(ruled).nonzero()[0].tolist() == [5, 8, 9]
    assert rules.ruled(np.ones(10, np.float32), [3])[3] == 0.5
    for wrong in ({"eos_token_id": 10}, {"suppress_tokens": [10]}, {"suppress_tokens": None}, {"min_new_tokens": "x"}):
        with pytest.raises(BadInputError, match="generation rules"):
            Rules.recorded(told | wrong, 10)
    with pytest.raises(BadInputError, match="min_new_tokens"):
        Rules.recorded({k: v for k, v in told.items() if k != "min_new_tokens"}, 10)


def test_greedy_takes_the_lowest_of_equals():
    assert greedy(np.array([1, 3, 3, 2], np.float32)) == 1


def quiet(vocab, **changes):
    """Sampling whose noise is zero: what is drawn is the largest that was kept."""
    return Sampling(noise=np.zeros((1, 1, vocab), np.float32), **changes)


def kept(scores, **changes):
    """Which codes can be drawn: noise lifts one after another above all others."""
    found = []
    for code in range(len(scores)):
        noise = np.zeros((1, 1, len(scores)), np.float32)
        noise[0, 0, code] = 1e6
        if drawn(np.asarray(scores, np.float32), Sampling(noise=noise, **changes), 0) == code:
            found.append(code)
    return found


def test_top_k_keeps_the_largest_and_of_equals_the_lowest_index():
    assert kept([0, 5, 4, 4, 4, -np.inf], top_k=3) == [1, 2, 3]
    assert kept([0, 5, 4, 4, 4, 1], top_k=None) == [0, 1, 2, 3, 4, 5]


def test_what_is_barred_is_not_drawn_whatever_top_k():
    assert kept([0, 1, -np.inf, -np.inf], top_k=4, temperature=1.0) == [0, 1]


def test_top_p_keeps_the_fewest_that_reach_it_after_temperature():
    scores = np.log([0.5, 0.25, 0.15, 0.1])
    assert kept(scores, top_p=0.7, top_k=None, temperature=1.0) == [0, 1]
    assert kept(scores, top_p=0.45, top_k=None, temperature=1.0) == [0]
    assert kept(scores, top_p=0.7, top_k=None, temperature=2.0) == [0, 1, 2]  # flatter: 0.37, 0.26, 0.20, 0.17


def test_temperature_divides_before_noise_is_added():
    scores, noise = np.array([1.0, 0.0], np.float32), np.array([[[0.0, 1.5]]], np.float32)
    assert drawn(scores, Sampling(noise=noise, temperature=1.0), 0) == 1
    assert drawn(scores, Sampling(noise=noise, temperature=0.5), 0) == 0


def test_no_noise_is_greedy_within_what_was_kept():
    assert drawn(logits(), quiet(VOCAB), 0) == greedy(logits())


def test_noise_is_the_generators_for_codebook_0_and_belongs_to_the_code():
    scores = np.zeros(64, np.float32)
    scores[:32] = -np.inf
    for seed, first, frame in ((3, 0, 0), (3, 0, 1), (4, 0, 1), (2**64 - 1, 2**40, 5)):
        row = np.empty(64, np.float32)
        law.gumbel_row(np.uint64(seed), np.uint64(first + frame), np.uint64(0), row)
        expected = 32 + int(row[32:].argmax())
        assert drawn(scores, Sampling(seed, frame=first, top_k=None), frame) == expected


def test_where_nothing_is_barred_the_draw_is_the_laws():
    scores, noise = logits(vocab=256), np.empty(256, np.float32)
    for frame in range(20):
        law.gumbel_row(np.uint64(5), np.uint64(frame), np.uint64(0), noise)
        for top_k, top_p in ((50, 1.0), (256, 0.7), (3, 0.9)):
            expected = law.sample(scores, np.float32(1.5), top_k, np.float32(top_p), noise)
            assert drawn(scores, Sampling(5, 1.5, top_k, top_p), frame) == expected


def test_codes_are_drawn_as_often_as_their_probability_says():
    scores = np.log(np.array([0.5, 0.3, 0.2], np.float32))
    sampling = Sampling(seed=11, temperature=1.0)
    counts = np.bincount([drawn(scores, sampling, frame) for frame in range(4000)], minlength=3)
    assert np.abs(counts / 4000 - [0.5, 0.3, 0.2]).max() < 0.04  # five standard deviations


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 0.0}, {"top_k": 0}, {"top_p": 0.0}, {"top_p": 1.1}, {"seed": None}, {"seed": -1}, {"frame": [0]}],
    ids=str,
)
def test_numbers_out_of_range_are_refused(wrong):
    with pytest.raises(BadInputError, match=next(iter(wrong))):
        drawn(logits(vocab=16), Sampling(**({"seed": 1} | wrong)), 0)


def test_noise_of_another_shape_is_refused():
    for shape in ((1, 5), (1, 4), (4,), (2, 1, 4)):
        with pytest.raises(BadInputError, match="noise has shape"):
            drawn(np.zeros(4, np.float32), Sampling(noise=np.zeros(shape, np.float32)), 0)


def test_scores_that_overflow_once_divided_are_no_code():
    with pytest.raises(NonFiniteLogitsError, match="frame 3"):
        drawn(np.full(4, 1e30, np.float32), Sampling(1, temperature=1e-20), 3)
