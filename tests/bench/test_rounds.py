"""Which cells get another round, and in which order."""

import pytest
from test_summary import failed, timed

from bench.cells import Cell
from bench.options import Pair
from bench.rounds import order_of_round, settled, worth_more

CELLS = [Cell(name, 2) for name in "abcd"]
NARROW = [50.0, 50.1, 49.9, 50.05, 49.95, 50.0]
WIDE = [50.0, 60.0, 45.0, 58.0, 44.0, 52.0]


def rounds(name, medians):
    return [timed([ms], name, round=number) for number, ms in enumerate(medians)]


def test_abba_turns_the_order_round_every_time():
    orders = [order_of_round(CELLS, number, "abba", seed=7) for number in range(4)]
    assert orders == [CELLS, CELLS[::-1]] * 2


def test_a_shuffle_depends_on_seed_and_round_alone():
    orders = [order_of_round(CELLS, number, "random", seed=7) for number in range(6)]
    assert orders == [order_of_round(CELLS, number, "random", seed=7) for number in range(6)]
    assert all(sorted(order) == CELLS for order in orders)
    assert len({tuple(order) for order in orders}) > 1
    assert orders != [order_of_round(CELLS, number, "random", seed=8) for number in range(6)]


def test_a_narrow_cell_stops_and_a_wide_one_goes_on():
    records = rounds("a", NARROW) + rounds("b", WIDE) + rounds("c", NARROW)
    assert worth_more(CELLS[:3], records, baseline="none") == [Cell("b", 2)]
    assert worth_more([CELLS[0], CELLS[2]], records, baseline="none") == []


@pytest.mark.parametrize("medians", [NARROW[:5], [50.0] * 5])
def test_fewer_than_six_rounds_are_never_enough(medians):
    assert worth_more(CELLS[:1], rounds("a", medians), baseline="none") == CELLS[:1]


def test_the_baseline_goes_on_with_any_other_and_not_alone():
    records = rounds("a", NARROW) + rounds("b", WIDE)
    assert worth_more(CELLS[:2], records, baseline="a") == CELLS[:2]
    assert worth_more(CELLS[:1], records, baseline="a") == []
    slower = [timed([2 * ms], "a", threads=1, round=number) for number, ms in enumerate(NARROW)]
    assert worth_more([Cell("a", 1), *CELLS[:2]], records + slower, baseline="a") == CELLS[:2]  # its fastest cell only


def test_a_cell_and_its_second_name_stop_together():
    records = rounds("a", NARROW) + rounds("b", WIDE)
    assert worth_more(CELLS[:2], records, baseline="none", together=CELLS[:2]) == CELLS[:2]


def test_a_pair_is_judged_by_its_ratio_which_drift_does_not_widen():
    records = rounds("a", WIDE) + rounds("b", [ms * 1.05 for ms in WIDE])
    pair = Pair(*CELLS[:2])
    assert worth_more(CELLS[:2], records, baseline="a", pair=pair) == []
    records = rounds("a", WIDE) + rounds("b", WIDE[::-1])
    assert worth_more(CELLS[:2], records, baseline="a", pair=pair) == CELLS[:2]


def test_a_pair_of_which_one_has_gone_wrong_needs_no_more():
    records = [*rounds("a", WIDE), *rounds("b", WIDE), failed(variant="b", round=6)]
    assert worth_more([CELLS[0]], records, baseline="a", pair=Pair(*CELLS[:2])) == []


def test_where_the_interval_lies_never_ends_a_run():
    """A run that stopped at its first verdict would find differences where there are none."""
    apart = rounds("a", WIDE) + rounds(
        "b", [ms * f for ms, f in zip(WIDE, (1.2, 1.5, 1.3, 1.6, 1.25, 1.4), strict=True)]
    )
    assert worth_more(CELLS[:2], apart, baseline="a", pair=Pair(*CELLS[:2])) == CELLS[:2]


def test_settled_looks_at_the_width():
    import numpy as np

    assert settled(np.log(np.array(NARROW)))
    assert not settled(np.log(np.array(WIDE)))
