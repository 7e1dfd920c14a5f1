"""Rounds are the unit: medians, intervals and paired ratios over them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.stats import median_of_rounds, paired_ratio, spread, tukey_outliers

TIMES = st.floats(0.001, 1e6)
ROUNDS = st.lists(st.lists(TIMES, min_size=1, max_size=7), min_size=1, max_size=9)


def test_median_of_round_medians_by_hand():
    found = median_of_rounds([[1, 2, 90], [4, 4], [10, 7, 9, 20, 1]])
    assert found.p50 == 4  # of 2, 4 and 9; the median of all ten samples would be 5.5
    assert found.min == 1
    assert (found.lo, found.hi) == (2, 9)  # all three the same round: 1 resample in 27, more than 2.5 %


@pytest.mark.parametrize(("rounds", "expected"), [([[5, 7]], (6, 6, 6)), ([[5], [9, 9]], (7, 5, 9))])
def test_below_three_rounds_the_interval_is_the_range(rounds, expected):
    found = median_of_rounds(rounds)
    assert (found.p50, found.lo, found.hi) == expected


def test_a_round_counts_once_however_many_frames_it_has():
    assert median_of_rounds([[1] * 1000, [2], [3]]).p50 == 2


def test_more_frames_do_not_narrow_the_interval():
    few = median_of_rounds([[10], [11], [12], [13], [14]])
    many = median_of_rounds([[value] * 500 for value in (10, 11, 12, 13, 14)])
    assert few == many
    assert few.hi - few.lo >= 2


def test_empty_rounds_are_left_out_and_nothing_at_all_is_refused():
    assert median_of_rounds([[], [3], []]).p50 == 3
    with pytest.raises(ValueError, match="no round"):
        median_of_rounds([[], []])


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf])
def test_what_is_no_time_is_refused(wrong):
    with pytest.raises(ValueError, match="not a time"):
        median_of_rounds([[1, 2], [1, wrong]])
    with pytest.raises(ValueError, match="not a time"):
        paired_ratio({0: [1, wrong]}, {0: [1, 2]})


@given(ROUNDS)
def test_the_interval_holds_the_median_and_stays_within_the_rounds(rounds):
    found = median_of_rounds(rounds)
    medians = [float(np.median(samples)) for samples in rounds]
    slack = 1e-9 * max(medians)
    assert min(medians) - slack <= found.lo <= found.p50 + slack
    assert found.p50 - slack <= found.hi <= max(medians) + slack
    assert found.min == min(min(samples) for samples in rounds)


@given(ROUNDS)
def test_the_same_samples_give_the_same_interval(rounds):
    assert median_of_rounds(rounds) == median_of_rounds(rounds)


def test_the_interval_covers_the_true_median():
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        machine_states = random.lognormal(math.log(50), 0.05, 9)  # one for each process; its frames differ far less
        found = median_of_rounds([state * random.lognormal(0, 0.002, 20) for state in machine_states])
        hits += found.lo <= 50 <= found.hi
    assert 0.9 <= hits / 400 <= 0.99


def test_paired_ratio_by_hand():
    ratio = paired_ratio({0: [10, 10], 1: [20], 2: [30]}, {0: [20, 20], 1: [80], 2: [90]})
    assert ratio.ratio == pytest.approx(3)  # of 2, 4 and 3
    assert (ratio.lo, ratio.hi) == (pytest.approx(2), pytest.approx(4))


def test_a_faster_cell_has_a_ratio_above_one():
    assert paired_ratio({0: [40]}, {0: [60]}).ratio == pytest.approx(1.5)


def test_a_cell_against_itself_is_exactly_one():
    rounds = {number: [3.3 + number, 4.1] for number in range(5)}
    ratio = paired_ratio(rounds, rounds)
    assert (ratio.ratio, ratio.lo, ratio.hi) == (1, 1, 1)


def test_rounds_that_only_one_has_are_left_out():
    ratio = paired_ratio({0: [1], 1: [100], 3: [], 4: [1]}, {0: [2], 2: [0.001], 3: [5]})
    assert (ratio.ratio, ratio.lo, ratio.hi) == (pytest.approx(2),) * 3


@pytest.mark.parametrize(("a", "b"), [({}, {}), ({0: [1]}, {1: [1]}), ({0: [1]}, {0: []}), ({0: []}, {0: [1]})])
def test_without_a_common_round_there_is_no_ratio(a, b):
    assert paired_ratio(a, b) is None


def test_pairing_removes_drift_that_both_share():
    random = np.random.default_rng(2)
    drift = [1.0, 1.4, 0.8, 1.9, 1.2, 0.7, 1.6]
    fast = {number: 50 * d * random.lognormal(0, 0.002, 20) for number, d in enumerate(drift)}
    slow = {number: 100 * d * random.lognormal(0, 0.002, 20) for number, d in enumerate(drift)}
    ratio = paired_ratio(fast, slow)
    assert ratio.lo <= 2 <= ratio.hi or ratio.ratio == pytest.approx(2, rel=2e-3)
    assert ratio.hi / ratio.lo < 1.005
    alone = median_of_rounds(list(fast.values()))
    assert alone.hi / alone.lo > 1.5  # what a comparison of the two medians would have had to live with


@given(st.dictionaries(st.integers(0, 8), st.tuples(TIMES, TIMES), min_size=1))
def test_the_ratio_turned_round_is_its_inverse(pairs):
    there = paired_ratio({n: [a] for n, (a, _) in pairs.items()}, {n: [b] for n, (_, b) in pairs.items()})
    back = paired_ratio({n: [b] for n, (_, b) in pairs.items()}, {n: [a] for n, (a, _) in pairs.items()})
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert there.lo <= there.ratio * (1 + 1e-9)
    assert there.ratio <= there.hi * (1 + 1e-9)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 0),
        ([5], 0),
        ([1, 1, 100], 0),  # three are too few to call one odd
        ([1, 2, 3, 4, 5], 0),
        ([1, 2, 3, 4, 8], 1),  # quartiles 2 and 4, limits -1 and 7
        ([1, 2, 3, 4, 7], 0),  # on the limit is within it
        ([-9, 10, 11, 12, 13, 14, 40], 2),
        ([7] * 9 + [8], 1),
    ],
)
def test_tukey_outliers(samples, expected):
    assert tukey_outliers(samples) == expected


def test_counting_outliers_drops_nothing():
    samples = [1, 2, 3, 4, 800]
    tukey_outliers(samples)
    assert samples == [1, 2, 3, 4, 800]
    assert median_of_rounds([samples, [800], [800]]).p50 == 800


def test_spread_by_hand():
    found = spread([[1, 2, 90], [4, 4], [], [10, 7, 9, 20, 1]])
    assert found.mad == 2  # medians 2, 4 and 9 are 2, 0 and 5 away from 4
    assert found.p99 == pytest.approx(np.percentile([1, 2, 90, 4, 4, 10, 7, 9, 20, 1], 99))
    assert found.outliers == 2  # 20 and 1, outside the fences 4 and 13 of their round


def test_the_mad_is_of_rounds_and_p99_of_frames():
    """A round more often than others has a wild frame: its median does not move, the 99th percentile does."""
    calm = [[10.0] * 50 for _ in range(6)]
    wild = [[10.0] * 48 + [30.0, 30.0] for _ in range(6)]
    assert (spread(calm).mad, spread(wild).mad) == (0, 0)
    assert spread(calm).p99 == 10
    assert spread(wild).p99 == 30


def test_the_spread_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no round"):
        spread([[]])
    with pytest.raises(ValueError, match="not a time"):
        spread([[1, 0]])
