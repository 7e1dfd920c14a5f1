"""Distances of logit rows, held against figures worked out by hand and against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import softmax

from bench.quality import rows


def logits_of(*probabilities):
    return np.log(np.array(probabilities, np.float64)).astype(np.float32)


def test_divergence_is_of_the_truth_from_the_other():
    truth, other = logits_of(0.5, 0.5), logits_of(0.25, 0.75)
    by_hand = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert rows.kl_divergence(other, truth) == pytest.approx(by_hand, rel=1e-6)
    assert rows.kl_divergence(truth, other) != pytest.approx(by_hand, rel=1e-2)


def test_divergence_is_scipys():
    generator = np.random.default_rng(1)
    truth, other = (generator.normal(0, 3, (4, 5, 64)).astype(np.float32) for _ in range(2))
    p, q = softmax(truth.astype(np.float64), axis=-1), softmax(other.astype(np.float64), axis=-1)
    assert np.allclose(rows.kl_divergence(other, truth), stats.entropy(p, q, axis=-1), rtol=1e-9)


def test_equal_rows_do_not_diverge_and_adding_a_constant_changes_nothing():
    truth = np.random.default_rng(2).normal(0, 3, (7, 64)).astype(np.float32)
    assert (rows.kl_divergence(truth, truth) == 0).all()
    assert np.allclose(rows.kl_divergence(truth + np.float32(4), truth), 0, atol=1e-6)


def test_far_logits_do_not_overflow():
    truth, other = np.array([1e4, 0], np.float32), np.array([0, 1e4], np.float32)
    assert rows.kl_divergence(other, truth) == pytest.approx(1e4)


def test_change_of_probability_is_of_the_code_that_the_truth_chose():
    truth, other = logits_of(0.6, 0.4), logits_of(0.25, 0.75)
    assert rows.probability_change(other, truth) == pytest.approx(-0.35, abs=1e-6)


def test_top_overlap_counts_codes_that_both_have_whatever_their_order():
    truth = np.array([9, 8, 7, 6, 5, 4, 3], np.float32)
    other = np.array([5, 6, 7, 8, 1, 2, 9], np.float32)
    assert rows.top_overlap(other, truth) == pytest.approx(4 / 5)
    assert rows.top_overlap(truth, truth) == 1


def test_of_equal_logits_the_lowest_codes_are_on_top():
    flat = np.zeros(8, np.float32)
    first_five = np.array([1, 1, 1, 1, 1, 0, 0, 0], np.float32)
    assert rows.top_overlap(flat, first_five) == 1
    assert rows.top_overlap(flat, first_five[::-1].copy()) == pytest.approx(2 / 5)


def test_mean_square_and_cosine_by_hand():
    a, b = np.array([3, 4], np.float32), np.array([3, 0], np.float32)
    assert rows.mean_square(a, b) == 8
    assert rows.cosine(a, b) == pytest.approx(0.6)
    assert np.isnan(rows.cosine(a, np.zeros(2, np.float32)))


@pytest.mark.parametrize("figure", [rows.kl_divergence, rows.probability_change, rows.mean_square, rows.cosine])
def test_a_row_that_is_not_finite_has_no_finite_figure(figure):
    truth = np.ones((2, 8), np.float32)
    bad = truth.copy()
    bad[1, 3] = np.nan
    found = figure(bad, truth)
    assert np.isfinite(found[0])
    assert np.isnan(found[1])
