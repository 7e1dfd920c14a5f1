"""The law does what it says, against exact rationals rounded step by step."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import exact_float32 as exact
import numba
import numpy as np
import pytest
from small_models import same_bits

from cplab import arithmetic as law
from cplab import constants

F = np.float32
SMALLEST_NORMAL = F(2.0**-126)


@numba.njit(error_model="numpy")
def exp_of_all(x, y):
    for k in range(len(x)):
        y[k] = law.exp(x[k])


@numba.njit(error_model="numpy")
def fma_of(a, b, c):
    return law.fma(a, b, c)


@numba.njit(error_model="numpy")
def silu_of(x):
    return law.silu(x)


def exp(x):
    x = np.atleast_1d(np.asarray(x, F))
    y = np.empty_like(x)
    exp_of_all(x, y)
    return y


def silu(x):
    return F(silu_of(F(x)))


def vector(seed, n, low=-3, high=3):
    """Random float32 with full mantissas and exponents from ``low`` to ``high``."""
    rng = np.random.default_rng(seed)
    return (rng.choice([-1, 1], n) * rng.uniform(1, 2, n) * 2.0 ** rng.integers(low, high + 1, n)).astype(F)


# -- the emulation itself ---------------------------------------------------------------------------------------------


def test_the_emulated_rounding_is_ieee():
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1, 1000) * 2.0 ** rng.integers(-152, 129, 1000)
    values = np.concatenate([values, [2.0**128, 2.0**-150, 3 * 2.0**-150, 1 + 2.0**-24, 1 + 3 * 2.0**-24]])
    with np.errstate(over="ignore"):
        expected = values.astype(F)
    assert same_bits(np.array([exact.rounded(Fraction(v)) for v in values], F), expected)


def test_the_laws_fma_rounds_once():
    differs = 0
    for seed in range(300):
        a, b, c = vector(seed, 3)
        expected = exact.fma(a, b, c)
        assert same_bits(F(fma_of(a, b, c)), expected)
        differs += expected != F(F(a * b) + c)
    assert differs > 50


# -- dot --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [16, 32, 48, 64, 208])
def test_dot_follows_the_sixteen_lane_rule(n):
    other_order = without_fma = 0
    for seed in range(20):
        w, x = vector(seed, n), vector(seed + 1000, n)
        got = F(law.dot(w, x))
        assert same_bits(got, exact.dot(w, x))
        order = np.random.default_rng(seed).permutation(n)
        other_order += got != exact.dot(w[order], x[order])
        without_fma += got != exact.dot_without_fma(w, x)
    assert other_order > 0
    assert (without_fma > 0) == (n > 16)  # a lane's first fma is a product rounded once


def test_dot_keeps_subnormals():
    w, x = vector(1, 32, -70, -66), vector(2, 32, -70, -66)
    got = F(law.dot(w, x))
    assert 0 < abs(got) < SMALLEST_NORMAL
    assert same_bits(got, exact.dot(w, x))


def test_dot_starts_from_plus_zero():
    assert same_bits(F(law.dot(np.full(16, -0.0, F), np.ones(16, F))), F(0.0))


def test_dot_of_large_numbers_overflows_to_infinity():
    assert law.dot(np.full(16, 3e38, F), np.full(16, 3e38, F)) == np.inf


def test_matvec_is_a_dot_for_each_row():
    W, x = vector(1, 5 * 32).reshape(5, 32), vector(2, 32)
    y = np.empty(5, F)
    law.matvec(W, x, y)
    assert same_bits(y, np.array([exact.dot(row, x) for row in W], F))


# -- RMSNorm ----------------------------------------------------------------------------------------------------------


def test_rms_norm_is_float32_throughout():
    eps = F(1e-6)
    float64_would_differ = 0
    for seed in range(40):
        x, weight = vector(seed, 48), vector(seed + 500, 48)
        y = np.empty_like(x)
        law.rms_norm(x, weight, eps, y)
        total = exact.dot(x, x)
        r = F(F(1) / exact.square_root(F(F(total / F(48)) + eps)))
        assert same_bits(y, np.array([F(F(v * r) * w) for v, w in zip(x, weight, strict=True)], F))
        in_float64 = F(1.0 / math.sqrt(float(total) / 48 + 1e-6))
        float64_would_differ += in_float64 != r
    assert float64_would_differ > 0


def test_rms_norm_scales_before_it_weighs():
    x, weight, eps = vector(3, 48), vector(4, 48), F(1e-6)
    y = np.empty_like(x)
    law.rms_norm(x, weight, eps, y)
    r = F(F(1) / exact.square_root(F(F(exact.dot(x, x) / F(48)) + eps)))
    assert not same_bits(y, x * (r * weight))


def test_rms_norm_of_zeros_is_zero():
    y = np.full(16, 7, F)
    law.rms_norm(np.zeros(16, F), np.ones(16, F), F(1e-6), y)
    assert same_bits(y, np.zeros(16, F))


# -- RoPE -------------------------------------------------------------------------------------------------------------


def test_rotate_rounds_each_product():
    a, b, cos, sin = (vector(seed, 16, -1, 0) for seed in (1, 2, 3, 4))
    x = np.concatenate([a, b])
    law.rotate(x, cos, sin)
    unfused = np.concatenate([a * cos - b * sin, b * cos + a * sin])
    first_fused = [exact.fma(*three) for three in zip(a, cos, -(b * sin), strict=True)]
    second_fused = [exact.fma(*three) for three in zip(-b, sin, a * cos, strict=True)]
    assert not same_bits(np.array(first_fused, F), unfused[:16])  # a fused multiply-add would show here
    assert not same_bits(np.array(second_fused, F), unfused[:16])
    assert same_bits(x, unfused)


def test_rotate_pairs_the_halves():
    x = np.zeros(32, F)
    x[3] = 1
    cos, sin = np.full(16, 0.6, F), np.full(16, 0.8, F)
    law.rotate(x, cos, sin)
    assert np.flatnonzero(x).tolist() == [3, 19]
    assert (x[3], x[19]) == (F(0.6), F(0.8))


# -- exp and silu -----------------------------------------------------------------------------------------------------


def test_exp_is_at_most_one_ulp_off():
    bits = np.arange(0, 0x42B17218 + 1, 997, dtype=np.uint32)  # 0 .. 88.72 and a bit
    x = np.concatenate([bits.view(F), -bits.view(F)])
    x = x[(x <= F(constants.EXP_HIGH)) & (x >= F(constants.EXP_LOW))]
    assert len(x) > 2_000_000
    truth = np.exp(x.astype(np.float64))
    ulp = np.spacing(truth.astype(F)).astype(np.float64)
    assert (np.abs(exp(x) - truth) / ulp).max() <= 1


def test_exp_is_the_written_polynomial():
    x = np.concatenate([vector(1, 60, -20, 6), np.array([88.0, -87.0, 0.34657, -0.34657], F)])
    x = x[(x <= F(constants.EXP_HIGH)) & (x >= F(constants.EXP_LOW))]
    assert same_bits(exp(x), np.array([exact.exp(v) for v in x], F))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 1.0),
        (-0.0, 1.0),
        (2.0**-149, 1.0),
        (-(2.0**-149), 1.0),
        (1e-39, 1.0),
        (88.73, np.inf),
        (3e38, np.inf),
        (np.inf, np.inf),
        (-87.34, 0.0),
        (-3e38, 0.0),
        (-np.inf, 0.0),
        (np.nan, np.nan),
        (-np.nan, np.nan),
    ],
)
def test_exp_at_its_edges(x, expected):
    assert same_bits(exp(x), np.array([expected], F))


def test_exp_is_finite_and_normal_up_to_its_bounds():
    high, low = F(constants.EXP_HIGH), F(constants.EXP_LOW)
    assert np.isfinite(exp(high)[0])
    assert exp(np.nextafter(high, F(np.inf))) == np.inf
    assert exp(low)[0] >= SMALLEST_NORMAL
    assert same_bits(exp(np.nextafter(low, F(-np.inf))), np.zeros(1, F))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (0.0, 0.0),
        (-0.0, -0.0),
        (89.0, 89.0),
        (3e38, 3e38),
        (np.inf, np.inf),
        (-89.0, -0.0),
        (-3e38, -0.0),
        (np.nan, np.nan),
        (2.0**-149, 0.0),  # half of the smallest subnormal, ties to even
        (2.0**-148, 2.0**-149),
    ],
)
def test_silu_at_its_extremes(x, expected):
    assert same_bits(silu(x), F(expected))


def test_silu_is_x_over_one_plus_exp():
    for x in vector(7, 200, -6, 6):
        with np.errstate(over="ignore"):
            assert same_bits(silu(x), F(x / F(F(1) + exp(-x)[0])))


def test_swiglu_is_silu_times_up():
    gate, up = vector(1, 64, -4, 6), vector(2, 64)
    y = np.empty_like(gate)
    law.swiglu(gate, up, y)
    assert same_bits(y, np.array([F(silu(g) * u) for g, u in zip(gate, up, strict=True)], F))


# -- attention --------------------------------------------------------------------------------------------------------


def attention_in_order(q, K, V, scale, order):
    p = {j: F(exact.dot(q, K[j]) * scale) for j in range(len(K))}
    largest = max(p.values())
    e = {j: exp(F(p[j] - largest))[0] for j in p}
    total = F(0)
    for j in order:
        total = F(total + e[j])
    y = np.zeros_like(q)
    for k in range(len(q)):
        for j in order:
            y[k] = exact.fma(F(e[j] / total), V[j, k], y[k])
    return y


def test_attend_goes_through_positions_in_ascending_order():
    scale = F(constants.attention_scale(32))
    descending_differs = 0
    for seed in range(8):
        n = 2 + seed
        q, K, V = vector(seed, 32, -1, 1), vector(seed + 50, n * 32, -1, 1), vector(seed + 90, n * 32, -1, 1)
        K, V = K.reshape(n, 32), V.reshape(n, 32)
        y = np.empty(32, F)
        law.attend(q, K, V, scale, y)
        assert same_bits(y, attention_in_order(q, K, V, scale, range(n)))
        descending_differs += not same_bits(y, attention_in_order(q, K, V, scale, range(n - 1, -1, -1)))
    assert descending_differs > 0


def test_attend_over_one_position_is_its_value():
    q, V = vector(1, 32), vector(2, 32).reshape(1, 32)
    y = np.empty(32, F)
    law.attend(q, vector(3, 32).reshape(1, 32), V, F(0.2), y)
    assert same_bits(y, V[0])


def test_attend_survives_scores_that_exp_could_not():
    K = np.stack([np.full(32, 10, F), np.full(32, -10, F)])
    V = np.stack([np.full(32, 3, F), np.full(32, 5, F)])
    y = np.empty(32, F)
    law.attend(np.full(32, 10, F), K, V, F(1), y)
    assert same_bits(y, V[0])


# -- residual and argmax ----------------------------------------------------------------------------------------------


def test_add_is_in_place():
    x, y = vector(1, 16), vector(2, 16)
    expected = x + y
    law.add(x, y)
    assert same_bits(x, expected)


@pytest.mark.parametrize(
    ("logits", "code"),
    [
        ([1, 3, 3, 2], 1),
        ([5, 5, 5, 5], 0),
        ([-2, -1, -1, -9], 1),
        ([0.0, -0.0, 0.0, -0.0], 0),
        ([-0.0, 0.0, -1, -2], 0),  # +0 is not larger than -0
        ([2.0**-149, 2.0**-148, 0, 0], 1),
        ([1, 2, 3, 4], 3),
    ],
)
def test_argmax_takes_the_lowest_among_equals(logits, code):
    assert law.argmax(np.array(logits, F)) == code


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_argmax_refuses_what_is_not_finite(bad, at):
    logits = np.array([1, 2, 3, 4], F)
    logits[at] = bad
    assert law.argmax(logits) == -1


# -- constants --------------------------------------------------------------------------------------------------------


def test_constants_are_the_roundings_that_they_say():
    getcontext().prec = 60
    ln2 = Decimal(2).ln()
    assert float(F(88.72)) == constants.EXP_HIGH
    assert float(F(-87.33)) == constants.EXP_LOW
    assert exact.rounded(Fraction(1 / ln2)) == constants.LOG2_E
    assert exact.rounded(Fraction(ln2) - Fraction(constants.LN2_HIGH)) == constants.LN2_LOW
    assert constants.ROUND_MAGIC == 1.5 * 2**23
    assert constants.LANES == 16


def test_n_times_the_high_part_of_ln2_is_exact():
    significant = Fraction(constants.LN2_HIGH).numerator.bit_length()
    assert significant <= 15
    assert significant + (129).bit_length() <= 24


def test_every_constant_is_a_float32():
    names = ("EXP_HIGH", "EXP_LOW", "LOG2_E", "LN2_HIGH", "LN2_LOW", "ROUND_MAGIC")
    for value in (*(getattr(constants, n) for n in names), *constants.EXP_POLYNOMIAL):
        assert float(F(value)) == value


def test_the_polynomial_is_exp():
    r = np.linspace(-math.log(2) / 2, math.log(2) / 2, 20001)
    error = np.abs(np.polyval(constants.EXP_POLYNOMIAL, r) / np.exp(r) - 1).max()
    assert error < 2.0**-27  # an eighth of a float32 ulp or less is left to rounding the coefficients


@pytest.mark.parametrize("head_dim", [32, 64, 128])
def test_attention_scale_is_one_over_the_root(head_dim):
    assert F(constants.attention_scale(head_dim)) == exact.square_root(F(1 / head_dim))
