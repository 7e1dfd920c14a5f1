"""The tolerance that calibrates itself: the lab's quantised variants, engines that are too far, no measure at all."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))
from naive_engines import NaiveEngine
from small_models import forced_codes, inputs, projected_model, spiky

from bench.quality.naive_distance import has_measure, naive_distance
from bench.quality.teacher_forced import answers
from bench.quality.truth import Truth
from cplab.decoder import Decoder
from cplab.naive import Naive
from cplab.oracle import Oracle

FRAMES = 5


def truth_of(model):
    oracle, codes = Oracle(model), forced_codes(model, FRAMES)
    hidden, cb0 = inputs(model, FRAMES)
    logits = np.stack([oracle.scored(*frame).logits for frame in zip(hidden, cb0, codes, strict=True)])
    return Truth(hidden, cb0, codes, logits)


@pytest.fixture(scope="module")
def truth(tiny):
    return truth_of(tiny)


def beside_naive(predictor, model, truth, kind):
    return naive_distance(answers(predictor, truth).logits, truth, Naive(model, kind), kind)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
@pytest.mark.parametrize("recompute", [False, True])
def test_the_labs_quantised_variants_only_round(tiny, truth, kind, recompute):
    rounded = tiny.repacked(kind)[0]
    found = beside_naive(Decoder(rounded, 1, format=kind, recompute=recompute), tiny, truth, kind)
    assert found.passed, found.detail
    assert 0.5 < found.ratio < 2
    assert found.ratio_median <= found.ratio
    assert found.rmse > 0


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_so_they_do_on_a_model_with_a_projection(kind):
    model = projected_model()
    found = beside_naive(Decoder(model.repacked(kind)[0], 1, format=kind), model, truth_of(model), kind)
    assert found.passed, found.detail


@pytest.mark.parametrize(("error", "passes"), [(0.0, True), (0.9, True), (1.2, False)])
def test_twice_the_naive_distance_is_the_limit(tiny, truth, error, passes):
    found = beside_naive(NaiveEngine(tiny, "q8_0", error=error), tiny, truth, "q8_0")
    assert found.passed is passes
    assert found.ratio == pytest.approx(1 + error, rel=0.02)
    assert found.allowed == 2


def test_fewer_bits_than_it_says_are_found(tiny, truth):
    found = beside_naive(NaiveEngine(tiny, "q4_0"), tiny, truth, "q8_0")
    assert not found.passed
    assert "2 allowed" in found.detail


def test_one_frame_too_far_is_enough(tiny, truth):
    logits = answers(NaiveEngine(tiny, "q8_0"), truth).logits
    logits[3] += np.float32(1)
    found = naive_distance(logits, truth, Naive(tiny, "q8_0"), "q8_0")
    assert not found.passed
    assert found.ratio_frame == 3
    assert found.ratio_median < 2


def test_where_the_naive_one_overflows_nothing_passes(tiny):
    model = spiky(tiny)
    truth = truth_of(model)
    found = naive_distance(truth.logits, truth, Naive(model, "f16"), "f16")
    assert not found.passed
    assert found.ratio is None
    assert "overflows" in found.detail


def test_a_format_that_nobody_rounds_naively_has_no_measure():
    assert has_measure("q4_0")
    assert not has_measure("bf12")
