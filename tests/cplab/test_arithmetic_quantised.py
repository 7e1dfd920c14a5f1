"""The law of quantised arithmetic, held against exact rationals, and against what it must not be."""

from __future__ import annotations

import exact_float32 as exact
import exact_quantised as model
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_models import same_bits

from cplab import arithmetic_quantised as law

F = np.float32
TINY = np.finfo(F).tiny
LARGEST = np.finfo(F).max


def quantised(x):
    x = np.ascontiguousarray(x, F)
    q, d = np.full(len(x), 99, np.int8), np.full(len(x) // 32, 99, F)
    good = law.quantise(x, q, d)
    return good, q, d


def dot(*one):
    return F(law.dot(*one))


def agrees(x):
    good, q, d = quantised(x)
    expected_q, expected_d = model.quantise(x)
    return good and np.array_equal(q, expected_q) and same_bits(d, expected_d)


def block(*values):
    return np.array([*values, *[0] * (32 - len(values))], F)


# -- activations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-140, -126, -120, -60, -1, 0, 6, 60, 124])
def test_activations_are_quantised_as_exact_rationals_say(exponent):
    x = np.random.default_rng(exponent + 200).standard_normal(640).astype(F) * F(2.0**exponent)
    assert agrees(x)


@settings(max_examples=200, deadline=None)
@given(arrays(F, 64, elements=st.floats(allow_nan=False, allow_infinity=False, width=32), fill=st.nothing()))
def test_any_finite_activation_is_quantised_as_exact_rationals_say(x):
    assert agrees(x)


def test_halves_go_to_even():
    halves = np.array([0.5, 1.5, 2.5, 3.5, 126.5, -0.5, -1.5, -2.5, -126.5], F)
    _, q, d = quantised(block(127, *halves))
    assert d.tolist() == [1]
    assert q[1:10].tolist() == [0, 2, 2, 4, 126, 0, -2, -2, -126]


def test_the_quotient_is_a_division_and_no_product_with_an_inverse():
    """Beside the halves the two round to different integers."""
    rng = np.random.default_rng(9)
    found = []
    for amax in rng.uniform(0.5, 2, 60).astype(F):
        halves = (rng.integers(-126, 126, 10) + 0.5).astype(F) * model.divided(amax, 127)
        beside = [halves, np.nextafter(halves, F(0)), np.nextafter(halves, F(np.inf) * np.sign(halves))]
        found.append(block(amax, *np.concatenate(beside)))
    assert agrees(np.concatenate(found))


@pytest.mark.parametrize("at", [0, 17, 31, 32, 63])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_one_value_that_is_no_number_is_said(at, bad):
    x = np.random.default_rng(0).standard_normal(64).astype(F)
    assert quantised(x)[0]
    x[at] = bad
    assert not quantised(x)[0]


def test_the_largest_finite_value_is_a_number():
    x = block(LARGEST, -LARGEST, LARGEST / 2, LARGEST / 127)
    good, q, d = quantised(x)
    assert good
    assert np.isfinite(d).all()
    assert q[[0, 1, 3]].tolist() == [127, -127, 1]
    assert agrees(x)


def test_zeros_of_either_sign_are_zeros():
    for zero in (0.0, -0.0):
        good, q, d = quantised(np.full(32, zero, F))
        assert good
        assert not q.any()
        assert same_bits(d, np.zeros(1, F))


def test_a_scale_among_subnormals_makes_the_block_zeros_and_its_neighbour_stays():
    """d is tested after rounding: the largest amax / 127 that rounds below 2**-126 is dropped, the next is kept."""
    edge = F(127 * TINY)
    while model.divided(edge, 127) >= TINY:
        edge = np.nextafter(edge, F(0))
    dropped, kept = block(edge, -edge), block(np.nextafter(edge, F(1)), 3 * TINY)
    good, q, d = quantised(np.concatenate([dropped, kept]))
    assert good
    assert not q[:32].any()
    assert d[0] == 0
    assert d[1] == TINY
    assert q[32:34].tolist() == [127, 3]
    assert agrees(np.concatenate([dropped, kept]))


def test_a_block_does_not_see_its_neighbours():
    x = np.random.default_rng(3).standard_normal(96).astype(F)
    _, q, d = quantised(x)
    x[32:64] *= F(1e20)
    _, other, other_d = quantised(x)
    assert np.array_equal(q[:32], other[:32])
    assert np.array_equal(q[64:], other[64:])
    assert (d[[0, 2]] == other_d[[0, 2]]).all()


# -- dot products -----------------------------------------------------------------------------------------------------


def operands(rng, n, low=-127, scaled=32):
    wq, xq = rng.integers(low, 128, n).astype(np.int8), rng.integers(-127, 128, n).astype(np.int8)
    wd = (rng.standard_normal(n // scaled) * 0.01).astype(np.float16).astype(F)
    return wq, wd, xq, rng.exponential(0.05, n // 32).astype(F)


@pytest.mark.parametrize("n", [32, 64, 96, 128, 160, 192, 1024, 3072])
@pytest.mark.parametrize("low", [-128, -8])
@pytest.mark.parametrize("scaled", [32, 16])
def test_dot_is_what_exact_rationals_say(n, low, scaled):
    for seed in range(3):
        one = operands(np.random.default_rng(seed), n, low, scaled)
        assert same_bits(dot(*one), model.dot(*one))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_dot_is_what_exact_rationals_say_for_any_scales(data):
    n, scaled = data.draw(st.sampled_from([32, 64, 96, 160])), data.draw(st.sampled_from([32, 16]))
    integers = arrays(np.int8, n, elements=st.integers(-128, 127))
    halves = st.floats(allow_nan=False, allow_infinity=False, width=16)
    scales = st.floats(0, 2.0**87, width=32)  # beyond which sums may be infinite, which rationals are not
    wq, xq = data.draw(integers), np.maximum(data.draw(integers), -127)
    wd = data.draw(arrays(np.float16, n // scaled, elements=halves)).astype(F)
    xd = data.draw(arrays(F, n // 32, elements=scales))
    assert same_bits(dot(wq, wd, xq, xd), model.dot(wq, wd, xq, xd))


def test_each_16_weights_have_a_scale_of_their_own_where_there_are_twice_as_many():
    wq, _, xq, xd = operands(np.random.default_rng(5), 96)
    for j in range(6):
        wd = np.zeros(6, F)
        wd[j] = 1
        part = slice(16 * j, 16 * j + 16)
        expected = float(wq[part].astype(int) @ xq[part]) * float(xd[j // 2])
        assert dot(wq, wd, xq, xd) == pytest.approx(expected, rel=1e-6)
        assert same_bits(dot(wq, np.repeat(xd, 2), xq, xd), dot(wq, xd, xq, xd))


def test_weights_of_minus_128_are_summed_exactly():
    """-128 has no positive counterpart in int8: |w| and sign tricks must still give the integer."""
    wq, xq = np.full(64, -128, np.int8), np.full(64, -127, np.int8)
    one = np.ones(2, F)
    assert law.group_sum(wq, xq, 0) == 4 * 128 * 127
    assert dot(wq, one, xq, one) == 64 * 128 * 127
    assert dot(wq, one, -xq, one) == -64 * 128 * 127


@pytest.mark.parametrize("scale", [2.0**-24, 2.0**-20, -(2.0**-24)])
def test_scales_among_the_subnormals_of_half_precision_count(scale):
    wq, _, xq, xd = operands(np.random.default_rng(1), 128)
    wd = np.full(4, np.float16(scale)).astype(F)
    got = dot(wq, wd, xq, xd)
    assert got != 0
    assert same_bits(got, model.dot(wq, wd, xq, xd))


def test_products_of_scales_may_be_subnormal():
    wq, wd, xq, _ = operands(np.random.default_rng(2), 128)
    xd = np.full(4, TINY, F)
    got = dot(wq, wd, xq, xd)
    assert 0 < abs(got) < 1e4 * TINY
    assert same_bits(got, model.dot(wq, wd, xq, xd))


def test_padding_changes_nothing_since_an_accumulator_is_never_minus_zero():
    """The only number that adding +0 changes is -0; neither cancelling, nor underflow, nor negative scales give one."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        wq, xq = (rng.integers(-2, 3, 32).astype(np.int8) for _ in range(2))
        wd = rng.choice(np.array([1, -1, 0, -0.0, 2**-24, -(2**-24)], F), 1)
        xd = rng.choice(np.array([1, 0, 2.0**-126, 2.0**-100], F), 1)
        zeros, none = np.zeros(32, np.int8), np.zeros(1, F)
        padded = [np.concatenate(pair) for pair in ((wq, zeros), (wd, none), (xq, zeros), (xd, none))]
        got = dot(wq, wd, xq, xd)
        assert same_bits(got, dot(*padded))
        assert not (got == 0 and np.signbit(got))


def test_an_infinite_scale_is_not_hidden_by_zero_weights():
    zeros, ones = np.zeros(64, np.int8), np.ones(64, np.int8)
    wd, xd = np.full(2, 65504, F), np.full(2, LARGEST / F(127), F)
    assert np.isnan(dot(zeros, wd, ones, xd))
    assert np.isinf(dot(ones, wd, ones, xd))


# -- what the law is not ----------------------------------------------------------------------------------------------


def other_laws(wq, wd, xq, xd):
    """Near misses: whole-block sums, a lane order, no fma, an unrounded scale, one accumulator."""
    groups = np.add.reduceat(wq.astype(np.int64) * xq, range(0, len(wq), 4))
    blocks = np.add.reduceat(wq.astype(np.int64) * xq, range(0, len(wq), 32))
    scale = [F(a * b) for a, b in zip(wd, xd, strict=True)]

    def lanes(terms, add):
        found = [F(0)] * 16
        for lane, total, s in terms:
            found[lane] = add(F(total), s, found[lane])
        while len(found) > 1:
            half = len(found) // 2
            found = [F(found[j] + found[j + half]) for j in range(half)]
        return found[0]

    yield "a block at a time", lanes([(b % 16, t, scale[b]) for b, t in enumerate(blocks)], exact.fma)
    yield (
        "lanes of neighbouring groups",
        lanes([(g // 2 % 16, t, scale[g // 8]) for g, t in enumerate(groups)], exact.fma),
    )
    yield "no fma", lanes([(g % 16, t, scale[g // 8]) for g, t in enumerate(groups)], lambda t, s, a: F(F(t * s) + a))
    yield (
        "scales one after the other",
        lanes([(g % 16, F(F(t) * wd[g // 8]), xd[g // 8]) for g, t in enumerate(groups)], exact.fma),
    )
    yield "one accumulator", lanes([(0, t, scale[g // 8]) for g, t in enumerate(groups)], exact.fma)


def test_near_misses_give_other_bits():
    seen = {}
    for seed in range(5):
        one = operands(np.random.default_rng(seed), 1024)
        truth = dot(*one)
        for name, value in other_laws(*one):
            assert abs(value - truth) < 1e-2
            seen[name] = seen.get(name, False) or not same_bits(value, truth)
    assert all(seen.values()), seen


def test_matvec_is_a_dot_for_each_row():
    rng = np.random.default_rng(7)
    W = [operands(rng, 96) for _ in range(5)]
    y = np.empty(5, F)
    law.matvec(np.stack([w[0] for w in W]), np.stack([w[1] for w in W]), W[0][2], W[0][3], y)
    assert same_bits(y, np.array([dot(w[0], w[1], W[0][2], W[0][3]) for w in W]))
