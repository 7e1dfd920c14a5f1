"""Sampled frames: every exact way to compute them gives the oracle's codes; each input matters, nothing else does."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from small_models import (
    HOT,
    arithmetic_of,
    arithmetics_of,
    forced_codes,
    formats_of,
    inputs,
    same_bits,
    small_model,
    with_tensors,
)

from cplab import Sampling, Trace
from cplab.decoder import Decoder
from cplab.errors import NonFiniteLogitsError
from cplab.formats import FORMATS
from cplab.kernels import machine
from cplab.oracle_quantised import in_arithmetic, oracle_for
from cplab.sampling import checked_draws, gumbel_noise
from variants.numpy_f32 import NumpyPredictor

POOL = numba.config.NUMBA_NUM_THREADS
F = np.float32
BATCH = 9
CASES = {
    "official": Sampling(seed=1),
    "hot nucleus": HOT,
    "hot nucleus of all": replace(HOT, top_k=None),
    "a seed and a frame for each": replace(HOT, seed=list(range(BATCH)), frame=list(range(7, 7 + BATCH))),
}


def cases(model):
    noise = np.random.default_rng(8).gumbel(size=(BATCH, model.spec.passes, model.spec.vocab)).astype(F)
    return CASES | {"noise": noise, "noise with parameters": Sampling(None, 0.7, 20, 0.9, noise=noise)}


@pytest.fixture(scope="module", params=["tiny", "projected", "wide"])
def judged(request):
    """A model, its inputs, and the oracles' codes and logits by arithmetic and case, free-running and pinned."""
    model = small_model(request.param)
    hidden, cb0 = inputs(model, BATCH)
    pinned = forced_codes(model, BATCH)
    expected = {}
    for arithmetic in arithmetics_of(model):
        oracle = oracle_for(in_arithmetic(model, arithmetic), arithmetic)
        for name, noise in cases(model).items():
            draws = checked_draws(model.spec, noise, BATCH)
            for mode, fed in (("free", [None] * BATCH), ("pinned", pinned)):
                frames = [oracle.frame(hidden[b], cb0[b], fed[b], draws[b : b + 1]) for b in range(BATCH)]
                expected[arithmetic, name, mode] = np.stack([f.codes for f in frames]), [f.logits for f in frames]
    return model, hidden, cb0, pinned, expected


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("format_name", list(FORMATS))
def test_formats_threads_batches_and_caches_draw_the_oracles_codes(judged, format_name, threads, recompute):
    if threads > POOL:
        pytest.skip("the pool is smaller")
    model, hidden, cb0, pinned, expected = judged
    if format_name not in formats_of(model):
        pytest.skip("rows are not made of its blocks")
    decoder = Decoder(model, threads, format=format_name, recompute=recompute)
    for name, noise in cases(model).items():
        for mode, forced in (("free", None), ("pinned", pinned)):
            trace = Trace()
            codes = decoder.predict(hidden, cb0, forced=forced, trace=trace, noise=noise)
            wanted, logits = expected[arithmetic_of(format_name), name, mode]
            np.testing.assert_array_equal(codes, wanted, err_msg=f"{name}, {mode}")
            assert same_bits(trace.logits, np.stack(logits))
            np.testing.assert_array_equal(decoder.predict(hidden, cb0, forced=forced, noise=noise), codes)


def test_numpy_draws_the_same_codes(judged):
    model, hidden, cb0, pinned, expected = judged
    for name, noise in cases(model).items():
        codes = NumpyPredictor(model, 1).predict(hidden, cb0, forced=pinned, noise=noise)
        np.testing.assert_array_equal(codes, expected["f32", name, "pinned"][0])


@pytest.fixture(scope="module")
def decoder():
    return Decoder(small_model("tiny"), 1, format="bf16")


def draw(decoder, noise, frames=8):
    return decoder.predict(*inputs(decoder.model, frames), noise=noise)


def test_a_seed_is_a_way_to_write_noise(decoder):
    noise = gumbel_noise(77, 8, decoder.model.spec, frame=3)
    seeded = Sampling(77, frame=3)
    np.testing.assert_array_equal(draw(decoder, seeded), draw(decoder, replace(seeded, seed=None, noise=noise)))
    plain = replace(seeded, temperature=1.0, top_k=None)
    np.testing.assert_array_equal(draw(decoder, plain), draw(decoder, noise))


@pytest.mark.parametrize(
    "change", [{"seed": 78}, {"frame": 4}, {"temperature": 4.0}, {"top_k": 2}, {"top_k": None}, {"top_p": 0.3}], ids=str
)
def test_seed_frame_and_every_parameter_matter(decoder, change):
    base = Sampling(77, temperature=1.5, frame=3)
    assert (draw(decoder, base) != draw(decoder, replace(base, **change))).any()


def test_frames_of_the_same_inputs_differ(decoder):
    hidden, cb0 = (np.repeat(x, 8, axis=0) for x in inputs(decoder.model, 1))
    codes = decoder.predict(hidden, cb0, noise=Sampling(5, temperature=1.5))
    assert len(np.unique(codes, axis=0)) > 4


def test_three_at_once_are_three_alone(decoder):
    hidden, cb0 = inputs(decoder.model, 3)
    together = decoder.predict(hidden, cb0, noise=Sampling(5, frame=10))
    for b in range(3):
        part = slice(b, b + 1)
        alone = decoder.predict(hidden[part], cb0[part], noise=Sampling(5, frame=10 + b))
        np.testing.assert_array_equal(alone[0], together[b])


def test_greedy_calls_between_sampled_ones_change_nothing(decoder):
    first, greedy = draw(decoder, HOT), draw(decoder, None)
    np.testing.assert_array_equal(draw(decoder, HOT), first)
    np.testing.assert_array_equal(draw(decoder, None), greedy)
    assert (first != greedy).any()


def test_top_k_of_one_and_no_noise_are_greedy(decoder):
    greedy = draw(decoder, None)
    np.testing.assert_array_equal(draw(decoder, Sampling(5, top_k=1)), greedy)
    np.testing.assert_array_equal(draw(decoder, Sampling(5, top_p=1e-9)), greedy)
    np.testing.assert_array_equal(draw(decoder, np.zeros((8, 2, 256), F)), greedy)


def test_pinned_codes_are_fed_back_and_drawn_ones_returned(decoder):
    hidden, cb0 = inputs(decoder.model, 3)
    pinned = forced_codes(decoder.model, 3)
    greedy, sampled = Trace(), Trace()
    decoder.predict(hidden, cb0, forced=pinned, trace=greedy)
    codes = decoder.predict(hidden, cb0, forced=pinned, trace=sampled, noise=HOT)
    assert same_bits(greedy.logits, sampled.logits)
    assert (codes != pinned).any()
    draws = checked_draws(decoder.model.spec, HOT, 3)
    for b in range(3):
        assert [draws.code(b, g, sampled.logits[b, g]) for g in range(2)] == codes[b].tolist()


def test_strided_noise_is_read_as_it_is(decoder):
    noise = gumbel_noise(1, 8, decoder.model.spec)
    wide = np.zeros((8, 2, 512), F)
    wide[..., ::2] = noise
    np.testing.assert_array_equal(draw(decoder, wide[..., ::2]), draw(decoder, noise))


def test_inputs_are_not_written_to(decoder):
    noise = gumbel_noise(1, 8, decoder.model.spec)
    before = noise.copy()
    draw(decoder, noise)
    draw(decoder, Sampling(noise=noise))
    assert same_bits(noise, before)


def test_a_callers_flush_to_zero_changes_nothing(decoder):
    noise = (gumbel_noise(1, 8, decoder.model.spec) * F(2.0**-130)).astype(F)
    zeros = with_tensors(decoder.model, lm_head__0__weight=np.zeros((256, 64), F))
    for predictor in (decoder, Decoder(zeros, 1, format="bf16")):  # in the second, subnormal noise alone decides
        expected = draw(predictor, noise)
        with machine.flush_to_zero():
            flushed = draw(predictor, noise)
        np.testing.assert_array_equal(flushed, expected)
    np.testing.assert_array_equal(expected[:, 0], noise[:, 0].argmax(-1))


def test_logits_that_overflow_once_divided_are_told_with_frame_and_pass(decoder):
    model = decoder.model
    head = model.f32("lm_head.1.weight").copy()
    head[3] *= F(2.0**100)
    large = Decoder(with_tensors(model, lm_head__1__weight=head), 1, format="f32")
    assert draw(large, Sampling(5)).shape == (8, 2)
    with pytest.raises(NonFiniteLogitsError) as error:
        draw(large, Sampling(5, temperature=1e-12))
    assert (error.value.frame, error.value.pass_index) == (0, 1)
