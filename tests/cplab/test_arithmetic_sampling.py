"""The law of sampling does what it says: log, the generator, what is kept, and what is drawn."""

from __future__ import annotations

import math
from itertools import pairwise

import exact_float32 as exact
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import same_bits

from cplab import arithmetic as basic
from cplab import arithmetic_sampling as law
from cplab import constants

F = np.float32
U = np.uint64
RUNS = settings(max_examples=150, deadline=None, derandomize=True)


@numba.njit(error_model="numpy")
def log_of_all(x, y):
    for k in range(len(x)):
        y[k] = basic.log(x[k])


def log(x):
    x = np.atleast_1d(np.asarray(x, F))
    y = np.empty_like(x)
    log_of_all(x, y)
    return y


# -- log --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "last", "step"),
    [(0x00000001, 0x7F7FFFFF, 1009), (0x3F000000, 0x40000000, 7), (0x3F7FF000, 0x3F801000, 1), (1, 0x00900000, 31)],
    ids=["all", "a half to two", "next to one", "subnormal"],
)
def test_log_is_at_most_one_ulp_off(first, last, step):
    x = np.arange(first, last, step, dtype=np.uint32).view(F)
    truth = np.log(x.astype(np.float64))
    ulp = np.spacing(np.abs(truth).astype(F)).astype(np.float64)
    assert (np.abs(log(x) - truth) / ulp).max() < 0.86


def test_log_is_the_written_polynomial():
    rng = np.random.default_rng(2)
    x = (rng.uniform(1, 2, 80) * 2.0 ** rng.integers(-126, 127, 80)).astype(F)
    x = np.concatenate([x, F([1, 2, 0.5, 0.70710677, 0.70710683, 1.4142135, 1.4142137, 1 - 2.0**-24])])
    assert same_bits(log(x), np.array([exact.log(v) for v in x], F))


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (1.0, 0.0),
        (0.0, -np.inf),
        (-0.0, -np.inf),
        (np.inf, np.inf),
        (-1.0, np.nan),
        (-np.inf, np.nan),
        (-(2.0**-149), np.nan),
        (np.nan, np.nan),
        (-np.nan, np.nan),
    ],
)
def test_log_at_its_edges(x, expected):
    assert same_bits(log(x), np.array([expected], F))


def test_the_logs_polynomial_is_log():
    f = np.linspace(math.sqrt(0.5) - 1, math.sqrt(2) - 1, 20002)
    assert (f != 0).all()
    mine = f + f * f * (f * np.polyval(constants.LOG_POLYNOMIAL, f) - 0.5)
    assert np.abs(mine / np.log1p(f) - 1).max() < 4e-9  # a fifteenth of a float32 ulp
    assert all(float(F(c)) == c for c in constants.LOG_POLYNOMIAL)
    assert F(math.sqrt(0.5)).view(np.int32) == constants.SQRT_HALF_BITS


# -- the generator ----------------------------------------------------------------------------------------------------

#: The authors' own known answers (Random123, kat_vectors): counter, key, result.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "result"), KNOWN)
def test_the_generator_is_philox(counter, key, result):
    assert [int(w) for w in law.philox(*(U(n) for n in counter + key))] == result


@pytest.mark.parametrize(
    ("word", "odd"), [(0, 1), (511, 1), (512, 3), (2**31, 2**23 + 1), (2**32 - 512, 2**24 - 1), (2**32 - 1, 2**24 - 1)]
)
def test_a_uniform_is_an_odd_multiple_so_never_zero_or_one(word, odd):
    u = law.uniform(U(word))
    assert float(u) == odd * 2.0**-24
    assert 0 < u < 1


def test_noise_is_indexed_by_seed_frame_codebook_and_code():
    seed, frame, codebook, code = 0x0123456789ABCDEF, 0x1122334455667788, 3, 77
    words = law.philox(U(77), U(3), U(0x55667788), U(0x11223344), U(0x89ABCDEF), U(0x01234567))
    u = law.uniform(words[0])
    noise = law.gumbel(U(seed), U(frame), U(codebook), U(code))
    assert same_bits(F(noise), -log(-log(u))[0])
    others = [
        law.gumbel(U(seed ^ 1), U(frame), U(codebook), U(code)),
        law.gumbel(U(seed ^ 2**63), U(frame), U(codebook), U(code)),
        law.gumbel(U(seed), U(frame ^ 1), U(codebook), U(code)),
        law.gumbel(U(seed), U(frame ^ 2**63), U(codebook), U(code)),
        law.gumbel(U(seed), U(frame), U(codebook + 1), U(code)),
        law.gumbel(U(seed), U(frame), U(codebook), U(code + 1)),
    ]
    assert len({float(x) for x in [noise, *others]}) == 7
    row = np.empty(100, F)
    law.gumbel_row(U(seed), U(frame), U(codebook), row)
    assert same_bits(row[77:78], np.array([noise], F))


def test_noise_ends_where_it_says():
    least, most = (-log(-log(law.uniform(U(w))))[0] for w in (0, 2**32 - 1))
    assert (round(float(least), 2), round(float(most), 2)) == (-2.81, 16.64)


def test_noise_is_gumbels():
    rows = np.empty((50, 2048), F)
    for frame in range(5):
        for codebook in range(10):
            law.gumbel_row(U(5), U(frame), U(codebook), rows[frame * 10 + codebook])
    x = np.sort(rows.reshape(-1).astype(np.float64))
    cdf = np.exp(-np.exp(-x))
    place = np.arange(len(x) + 1) / len(x)
    distance = max(np.abs(cdf - place[1:]).max(), np.abs(cdf - place[:-1]).max())
    assert distance * math.sqrt(len(x)) < 1.63  # Kolmogorov-Smirnov: 1 % of right generators are further off
    neighbours = np.corrcoef(rows[:, :-1].reshape(-1), rows[:, 1:].reshape(-1))[0, 1]
    books = np.corrcoef(rows[:-1].reshape(-1), rows[1:].reshape(-1))[0, 1]
    assert max(abs(neighbours), abs(books)) < 4 / math.sqrt(len(x))


# -- what is kept -----------------------------------------------------------------------------------------------------


def written_out(logits, temperature, top_k, top_p):
    """The rules again, with Python's sort and rationals: the codes that may be drawn, best first."""
    s = [F(x / F(temperature)) for x in logits]
    order = sorted(range(len(s)), key=lambda code: (-float(s[code]), code))[:top_k]
    if top_p >= 1:
        return s, order
    e = [exact.exp(F(s[c] - s[order[0]])) if s[c] - s[order[0]] > F(-87.3) else F(0) for c in order]
    total = F(0)
    for value in e:
        total = F(total + value)
    kept, before = [], F(0)
    for code, value in zip(order, e, strict=True):
        if before >= F(top_p):
            break
        kept.append(code)
        before = F(before + F(value / total))
    return s, kept


@RUNS
@given(
    logits=st.lists(
        st.sampled_from([-60.0, -3.5, -1.0, -0.0, 0.0, 0.25, 1.0, 2.0, 2.5, 30.0]), min_size=16, max_size=40
    ),
    temperature=st.sampled_from([0.3, 0.9, 1.0, 1.7]),
    top_k=st.integers(1, 40),
    top_p=st.sampled_from([1e-6, 0.2, 0.5, 0.8, 0.95, 0.9999, 1.0]),
    seed=st.integers(0, 99),
)
def test_what_is_kept_and_drawn_is_what_the_rules_say(logits, temperature, top_k, top_p, seed):
    logits = np.array(logits, F)
    k = min(top_k, len(logits))
    s, expected = written_out(logits, temperature, k, top_p)
    scaled = np.empty_like(logits)
    assert law.scaled(logits, F(temperature), scaled)
    assert same_bits(scaled, np.array(s, F))
    assert law.kept(scaled, k, F(top_p)).tolist() == expected
    noise = np.round(np.random.default_rng(seed).gumbel(size=len(logits)), 0).astype(F)  # with ties in the sum
    drawn = law.sample(logits, F(temperature), k, F(top_p), noise)
    assert drawn == min(expected, key=lambda code: (-float(F(s[code] + noise[code])), code))


def kept(logits, temperature=1.0, top_k=None, top_p=1.0):
    logits = np.array(logits, F)
    s = np.empty_like(logits)
    assert law.scaled(logits, F(temperature), s)
    return sorted(law.kept(s, len(logits) if top_k is None else top_k, F(top_p)).tolist())


def test_ties_at_the_edge_of_top_k_keep_the_lowest_codes():
    logits = [1, 3, 2, 2, 5, 2, 2]
    assert kept(logits, top_k=3) == [1, 2, 4]
    assert kept(logits, top_k=4) == [1, 2, 3, 4]


def test_minus_zero_ties_with_zero():
    assert kept([-0.0, 0.0, -0.0, -1.0], top_k=1) == [0]
    assert kept([0.0, -0.0, 1.0, -1.0], top_k=2) == [0, 2]


def test_temperature_comes_before_top_k():
    near_two = (F(1.9) + np.arange(10) * F(2.0**-23)).astype(F)  # closer together than numbers above 1 once halved
    a, b = next((a, b) for a, b in pairwise(near_two) if a / F(1.8) == b / F(1.8))
    assert kept([a, b], top_k=1) == [1]
    assert kept([a, b], 1.8, top_k=1) == [0]  # equal once divided, and then the lower stays


def test_top_p_keeps_the_smallest_set_that_reaches_it():
    quarters = np.log([0.5, 0.25, 0.125, 0.125]).tolist()
    assert kept(quarters, top_p=0.49) == [0]
    assert kept(quarters, top_p=0.51) == [0, 1]
    assert kept(quarters, top_p=0.74) == [0, 1]
    assert kept(quarters, top_p=0.76) == [0, 1, 2]
    assert kept(quarters, top_p=1.0) == [0, 1, 2, 3]
    assert kept([0.0, 0.0, 0.0, 0.0], top_p=0.5) == [0, 1]  # exactly reached by two; ties by code
    assert kept([9.0, 0.0], top_p=1e-6) == [0]


def test_temperature_comes_before_top_p():
    logits = np.log([0.6, 0.2, 0.1, 0.1]).tolist()
    assert kept(logits, 1.0, top_p=0.55) == [0]
    assert kept(logits, 3.0, top_p=0.55) == [0, 1]


def test_top_p_looks_at_what_top_k_left():
    logits = np.log([0.3, 0.3, 0.2, 0.2]).tolist()
    assert kept(logits, top_p=0.45) == [0, 1]
    assert kept(logits, top_k=2, top_p=0.45) == [0]  # of two equal ones the first has half


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_as_a_logit_is(bad):
    zeros = np.zeros(16, F)
    logits = zeros.copy()
    logits[9] = bad
    assert law.sample(logits, F(1), 16, F(1), zeros) == -1
    assert law.sample(zeros, F(1), 16, F(1), zeros) == 0


def test_logits_beyond_float32_once_scaled_are_refused():
    assert law.sample(np.full(16, 1e30, F), F(1e-20), 16, F(1), np.zeros(16, F)) == -1


def test_without_noise_the_largest_logit_is_drawn():
    logits = np.random.default_rng(1).normal(0, 3, 2048).astype(F)
    for top_k, top_p in ((1, 1.0), (50, 1.0), (2048, 0.5), (2048, 1.0)):
        assert law.sample(logits, F(0.9), top_k, F(top_p), np.zeros(2048, F)) == basic.argmax(logits)


# -- the distribution -------------------------------------------------------------------------------------------------

DRAWS = 20_000


@numba.njit(error_model="numpy")
def many(logits, temperature, top_k, top_p, seed, codes):
    noise = np.empty(len(logits), np.float32)
    for frame in range(len(codes)):
        law.gumbel_row(seed, np.uint64(frame), np.uint64(1), noise)
        codes[frame] = law.sample(logits, temperature, top_k, top_p, noise)


def chi_square(counts, probabilities):
    """The statistic, its degrees of freedom, and its 99.9 % point (Wilson and Hilferty); rare codes are pooled."""
    expected = probabilities * counts.sum()
    assert counts[probabilities == 0].sum() == 0
    common = expected >= 5
    pooled = [(counts[common], expected[common]), ([counts[~common].sum()], [max(expected[~common].sum(), 1e-9)])]
    if not (~common & (probabilities > 0)).any():
        pooled.pop()
    found, wanted = (np.concatenate(part) for part in zip(*pooled, strict=True))
    degrees = len(found) - 1
    limit = degrees * (1 - 2 / (9 * degrees) + 3.09 * math.sqrt(2 / (9 * degrees))) ** 3
    return ((found - wanted) ** 2 / wanted).sum(), degrees, limit


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"), [(0.9, 50, 1.0), (1.3, 256, 1.0), (0.7, 256, 0.9), (1.0, 20, 0.6)]
)
def test_codes_are_drawn_as_often_as_the_softmax_says(temperature, top_k, top_p):
    logits = np.random.default_rng(11).normal(0, 1.5, 256).astype(F)
    s = logits.astype(np.float64) / float(F(temperature))
    order = np.argsort(-s)[:top_k]
    p = np.exp(s[order] - s[order[0]])
    p /= p.sum()
    sums = np.cumsum(p)
    last = int(np.searchsorted(sums, top_p)) if top_p < 1 else len(order) - 1
    assert all(abs(total - top_p) > 1e-4 for total in sums) or top_p == 1  # no edge for rounding to decide
    probabilities = np.zeros(256)
    probabilities[order[: last + 1]] = p[: last + 1] / p[: last + 1].sum()
    codes = np.empty(DRAWS, np.int64)
    many(logits, F(temperature), top_k, F(top_p), U(2026), codes)
    statistic, degrees, limit = chi_square(np.bincount(codes, minlength=256), probabilities)
    assert degrees >= 5
    assert statistic < limit
    tilted = np.where(probabilities > 0, probabilities * np.exp(0.1 * s), 0)
    assert chi_square(np.bincount(codes, minlength=256), tilted / tilted.sum())[0] > limit  # the test can tell


def test_frames_and_seeds_draw_on_their_own():
    logits = np.zeros(256, F)
    first, second = np.empty(2000, np.int64), np.empty(2000, np.int64)
    many(logits, F(1), 256, F(1), U(1), first)
    many(logits, F(1), 256, F(1), U(2), second)
    assert (first == second).mean() < 0.02  # 1 / 256 by chance
    assert np.mean([a == b for a, b in pairwise(first)]) < 0.02
