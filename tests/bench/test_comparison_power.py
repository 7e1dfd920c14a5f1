"""How often a verdict is right, over 500 made-up runs of each kind: what `bench.comparison` says of itself."""

from collections import Counter

import pytest
from made_up_noise import log_ratios

from bench.comparison import compare

RUNS = 500


def verdicts(kind, rounds=12):
    counts = Counter(compare("a", "b", log_ratios(kind, seed, rounds)).verdict for seed in range(RUNS))
    assert counts.total() == RUNS
    return {verdict: counts[verdict] / RUNS for verdict in ("faster", "slower", "same", "undecided")}


@pytest.mark.parametrize("rounds", [6, 12])
@pytest.mark.parametrize("kind", ["equal", "drifting", "bimodal"])
def test_where_nothing_differs_at_most_5_in_100_say_so(kind, rounds):
    found = verdicts(kind, rounds)
    assert found["faster"] + found["slower"] <= 0.05


def test_5_percent_apart_is_found():
    found = verdicts("5%")
    assert found["slower"] >= 0.9
    assert found["faster"] == found["same"] == 0


def test_3_percent_apart_is_found_about_nine_times_in_ten_and_never_the_wrong_way_round():
    found = verdicts("3%")
    assert 0.84 <= found["slower"] <= 0.94
    assert found["faster"] == found["same"] == 0


def test_with_six_rounds_3_percent_is_found_about_every_other_time():
    found = verdicts("3%", rounds=6)
    assert 0.43 <= found["slower"] <= 0.63
    assert found["faster"] == 0


def test_equal_cells_are_called_the_same_more_often_than_not():
    assert verdicts("equal")["same"] > 0.5
