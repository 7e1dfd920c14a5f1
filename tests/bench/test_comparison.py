"""The rules of a verdict, one by one."""

import math

import numpy as np
import pytest

from bench.comparison import MOST_MORE, compare, compare_apart, in_words, noise_of
from bench.records import Ratio


def logs(*percent):
    return np.log1p(np.array(percent) / 100)


FIVE = logs(4.6, 5.2, 4.9, 5.4, 4.8, 5.1)


def test_a_slower_and_a_faster_cell():
    slower, faster = compare("a", "b", FIVE), compare("b", "a", -FIVE)
    assert (slower.verdict, faster.verdict) == ("slower", "faster")
    assert slower.ratio.ratio == pytest.approx(1.05, abs=2e-3)
    assert slower.ratio.ratio * faster.ratio.ratio == pytest.approx(1)
    assert (slower.a, slower.b, slower.rounds, slower.limit) == ("a", "b", 6, 0.02)
    assert slower.p == pytest.approx(2 / 64)  # all six signs alike: two of 2^6 ways
    assert in_words(slower) == "slower by 5.0 %"


@pytest.mark.parametrize("rounds", range(1, 6))
def test_fewer_than_six_rounds_can_only_be_undecided(rounds):
    found = compare("a", "b", logs(*[50.0 + n for n in range(rounds)]))
    assert found.verdict == "undecided"
    assert found.more_rounds >= 6 - rounds


def test_a_sure_change_below_two_percent_is_none():
    found = compare("a", "b", logs(1.4, 1.5, 1.6, 1.5, 1.45, 1.55))
    assert found.ratio.lo > 1
    assert found.p < 0.05
    assert found.verdict == "same"


def test_a_change_below_the_runs_own_noise_is_none():
    assert compare("a", "b", FIVE, noise=0.04).verdict == "slower"
    found = compare("a", "b", FIVE, noise=0.06)
    assert (found.verdict, found.limit) == ("same", 0.06)


def test_the_threshold_is_the_users():
    assert compare("a", "b", FIVE, least_change=0.10).verdict == "same"
    assert compare("a", "b", logs(1.4, 1.5, 1.6, 1.5, 1.45, 1.55), least_change=0.01).verdict == "slower"


def test_an_interval_that_holds_one_decides_nothing_and_says_how_many_rounds_would():
    found = compare("a", "b", logs(12, -9, 8, -3, 10, -6, 9, 4))
    assert found.ratio.lo < 1 < found.ratio.hi
    assert found.verdict == "undecided"
    assert found.more_rounds >= 1
    assert in_words(found) == f"undecided, about {found.more_rounds} more rounds"


def test_a_wider_interval_asks_for_more_rounds():
    small = compare("a", "b", logs(5, -3, 4, -2, 5, -3, 4, 3)).more_rounds
    assert compare("a", "b", 1.5 * logs(5, -3, 4, -2, 5, -3, 4, 3)).more_rounds >= small


def test_rounds_that_nobody_would_measure_are_not_promised():
    found = compare("a", "b", logs(*[30, -30] * 4, 1.99, -30, 30))
    assert found.more_rounds is None
    assert str(MOST_MORE) in in_words(found)


def test_one_wild_round_decides_nothing():
    steady = logs(*[5.0 + n / 10 for n in range(11)])
    assert compare("a", "b", np.append(steady, -math.log(9))).verdict == "slower"
    still = logs(0.1, -0.2, 0.3, -0.1, 0.2, -0.3, 0.1, -0.1, 0.2, -0.2, 0.0)
    assert compare("a", "b", np.append(still, math.log(9))).verdict == "same"


def test_identical_rounds_are_the_same():
    found = compare("a", "b", np.zeros(8))
    assert (found.verdict, found.p, found.ratio) == ("same", 1, Ratio(ratio=1, lo=1, hi=1))


def test_no_common_round_is_refused():
    with pytest.raises(ValueError, match="no round in common"):
        compare("a", "b", np.array([]))


def test_the_same_rounds_give_the_same_verdict_again():
    many = logs(*np.random.default_rng(3).normal(2.5, 2, 20))
    assert compare("a", "b", many) == compare("a", "b", many)


def test_noise_is_the_far_end_of_the_interval():
    assert noise_of(Ratio(ratio=1.0, lo=0.99, hi=1.03)) == pytest.approx(0.03)
    assert noise_of(Ratio(ratio=1.0, lo=1 / 1.05, hi=1.03)) == pytest.approx(0.05)


def test_runs_apart_are_resampled_apart():
    random = np.random.default_rng(5)
    a, b = random.normal(4, 0.01, 12), random.normal(4 + math.log(1.06), 0.01, 9)
    found = compare_apart("a", "b", a, b, note="not interleaved")
    assert (found.verdict, found.rounds, found.note) == ("slower", 9, "not interleaved")
    assert found.ratio.lo <= 1.06 <= found.ratio.hi
    assert compare_apart("a", "b", a, a + 0.001).verdict == "same"
    assert compare_apart("a", "b", a[:5], b).verdict == "undecided"


@pytest.mark.parametrize("shift", [0.0, 1.1])
def test_within_noise_that_hides_everything_nothing_is_same(shift):
    """Three times as long, where one cell is up to 16.9 times itself, is as little told apart as equal times."""
    logs = np.random.default_rng(3).normal(shift, 0.01, 12)
    found = compare("a", "b", logs, noise=15.9)
    assert (found.verdict, found.too_noisy, found.more_rounds) == ("undecided", True, None)
    assert in_words(found) == "undecided: this machine is too noisy to tell"
    assert compare("a", "b", np.random.default_rng(3).normal(0, 0.01, 12), noise=0.03).verdict == "same"


def test_what_is_beyond_great_noise_is_told_and_a_wide_threshold_is_the_users():
    logs = np.random.default_rng(3).normal(1.1, 0.01, 12)
    assert compare("a", "b", logs, noise=0.6).verdict == "slower"
    equal = compare("a", "b", logs - 1.1, least_change=0.8, noise=0.6)
    assert (equal.verdict, equal.too_noisy) == ("same", False)
