"""The gate finds every fault of sampling, says where, and blames nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty_variants as faulty
from naive_engines import NaiveEngine
from oracle_predictor import OraclePredictor

from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.gate import judge
from cplab.gate_sampling import SAMPLINGS
from cplab.golden import find_golden
from cplab.sampling import checked_draws
from cplab.sources import load_model
from variants.numpy_f32 import NumpyPredictor

THOROUGH, QUICK = 8, 2


@pytest.fixture(scope="module")
def tiny():
    return load_model("synthetic:tiny")


@pytest.fixture(scope="module")
def golden(tiny):
    found = find_golden(tiny)
    assert found is not None
    return found


def found(predictor, tiny, golden, frames=THOROUGH, **options):
    """The gate's failed checks, and what it says of sampling."""
    report = judge(predictor, tiny, golden, frames=frames, **options)
    return report.failed(), next(check.detail for check in report.checks if check.name == "sampling")


@pytest.mark.parametrize("frames", [QUICK, THOROUGH])
def test_right_variants_pass(tiny, golden, frames):
    for predictor in (Decoder(tiny, 1, format="f16"), OraclePredictor(tiny)):
        assert found(predictor, tiny, golden, frames) == ([], "")
    assert found(NumpyPredictor(tiny, 1), tiny, golden, frames, tier="codes") == ([], "")


def test_the_sets_of_parameters_draw_other_codes_from_the_same_logits(tiny, golden):
    """So that a variant that takes one for another is found."""
    logits = np.random.default_rng(0).normal(0, 2, (8, 2, 256)).astype(np.float32)
    drawn = {}
    for name, sampling in SAMPLINGS.items():
        draws = checked_draws(tiny.spec, sampling, 8)
        drawn[name] = [draws.code(b, g, logits[b, g]) for b in range(8) for g in range(2)]
    for a, b in combinations(drawn, 2):
        assert drawn[a] != drawn[b], (a, b)


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (faulty.IgnoresSeed, "official parameters: frame 0, pass"),
        (faulty.SameSampleEachFrame, "official parameters: frame 0, pass"),
        (faulty.SameNoiseEachPass, "official parameters: frame 0, pass 1: code"),
        (faulty.SampledGreedily, "official parameters: frame"),
        (faulty.TemperatureLast, "a hot nucleus: frame"),
        (faulty.TemperedNoise, "a hot nucleus: frame"),
        (faulty.FeedsTheLargest, "free-running"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
@pytest.mark.parametrize("frames", [QUICK, THOROUGH])
def test_a_fault_of_sampling_is_found_and_nothing_else_is_blamed(tiny, golden, build, where, frames):
    failed, detail = found(build(tiny), tiny, golden, frames)
    assert failed == ["sampling"]
    assert where in detail


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("temperature", "a hot nucleus"),
        ("top_k", "a hot nucleus"),
        ("top_p", "a hot nucleus"),
        ("frame", "official parameters"),
    ],
)
def test_a_parameter_that_is_ignored_is_found(tiny, golden, name, where):
    failed, detail = found(faulty.IgnoresParameter(tiny, name), tiny, golden)
    assert failed == ["sampling"]
    assert detail.startswith(f"{where}: frame")


def test_top_p_before_top_k_is_found_where_both_limit(tiny, golden):
    failed, detail = found(faulty.TopPFirst(tiny), tiny, golden)
    assert failed == ["sampling"]
    assert detail.startswith("half the probability: frame")


def test_a_batch_that_draws_alike_is_found(tiny, golden):
    class Alike(faulty.Samples):
        """Rows of a batch have the first one's seed."""

        def changed(self, noise, frames):
            return noise if isinstance(noise.seed, int) else replace(noise, seed=noise.seed[0])

    failed, detail = found(Alike(tiny), tiny, golden)
    assert failed == ["sampling"]
    assert detail.startswith("3 at once, a seed for each, number 2 of 3, pass")


def test_noise_given_as_an_array_must_be_used(tiny, golden):
    class Shifted(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, noise=None, **options):
            if isinstance(noise, np.ndarray):
                noise = np.roll(noise, 1, axis=-1)
            return super().predict(hidden, cb0_embed, noise=noise, **options)

    failed, detail = found(Shifted(tiny), tiny, golden)
    assert failed == ["sampling"]
    assert detail.startswith("noise alone: frame 1, pass")


def test_drawing_must_not_change_logits(tiny, golden):
    class Tempered(faulty.Wrapped):
        """Divides the logits in place and traces what is left."""

        def predict(self, hidden, cb0_embed, *, trace=None, noise=None, **options):
            codes = super().predict(hidden, cb0_embed, trace=trace, noise=noise, **options)
            if trace is not None and noise is not None:
                trace.logits = trace.logits / np.float32(0.9)
            return codes

    failed, detail = found(Tempered(tiny), tiny, golden, QUICK)
    assert failed == ["sampling"]
    assert detail == "official parameters: frame 0 has other logits than without noise"


def test_an_exact_variant_may_not_refuse(tiny, golden):
    class Greedy(faulty.Wrapped):
        def predict(self, hidden, cb0_embed, *, noise=None, **options):
            if noise is not None:
                raise BadInputError("this variant predicts greedily; noise must be None")
            return super().predict(hidden, cb0_embed, **options)

    failed, detail = found(Greedy(tiny), tiny, golden, QUICK)
    assert failed == ["sampling"]
    assert detail == "noise is refused: this variant predicts greedily; noise must be None"
    assert found(Greedy(tiny), tiny, golden, QUICK, tier="codes") == ([], "")


def test_other_tiers_may_refuse_and_must_draw_right_where_they_do_not(tiny, golden):
    assert "sampling" not in judge(NaiveEngine(tiny, "f16"), tiny, golden, tier="quality", format="f16").failed()
    failed, _ = found(faulty.IgnoresSeed(tiny), tiny, golden, tier="codes")
    assert failed == ["sampling"]
