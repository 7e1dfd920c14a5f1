"""The vector kernels give the bits of the law, for every format, token count, width and alignment."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import same_bits

from cplab import arithmetic as law
from cplab.formats import FLOAT_FORMATS, FORMATS
from cplab.jit import jit
from cplab.kernels import blocks, packing, units, vectors

F = np.float32
SENTINEL = F(-123.25)
KINDS = ["plain", "wide", "subnormal", "large", "zeros"]


def values(kind, rng, shape, format_name="f32"):
    """Numbers that a format holds exactly: ordinary ones, of all sizes, subnormal, near overflow, mostly zeros."""
    x = rng.normal(0, 1, shape)
    if kind == "wide":
        x *= 2.0 ** rng.integers(-30, 14, shape)
    elif kind == "subnormal":
        x *= 2.0 ** rng.integers(-149, -128, shape) if format_name != "f16" else 2.0**-22
    elif kind == "large":
        x *= 2.0**62 if format_name != "f16" else 2.0**12
    elif kind == "zeros":
        x *= np.where(rng.random(shape) < 0.7, 0.0, rng.choice([-1, 1], shape))
    kind_of = FLOAT_FORMATS[format_name]
    return kind_of.unpack(kind_of.pack(x.astype(F)))


def misaligned(array, by=4):
    """A copy that starts ``by`` bytes past a cache line, with sentinels around it."""
    raw = np.zeros(array.nbytes + 256, np.uint8)
    start = -raw.ctypes.data % 64 + 64 + by
    view = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def at(array):
    return array.ctypes.data


def panel(x):
    """``[T, n]`` -> ``[n / 16][T][16]``."""
    T, n = x.shape
    return np.ascontiguousarray(x.reshape(T, n // 16, 16).transpose(1, 0, 2))


def run_unit(kind, packed, x, *, y_token=64, ahead=4096, by=4):
    """`units.unit` over 16 packed rows and tokens ``x [T, n]``: y ``[T, 16]``; what stands between is left alone."""
    T, n = x.shape
    y = misaligned(np.full((T, y_token // 4), SENTINEL, F))
    laid = packing.streamed(kind, packed)
    p, W = misaligned(panel(x)), misaligned(laid.units, by)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 9)(units.unit.address)
    call(laid.code, at(W), laid.row_bytes, n, at(p), T, at(y), y_token, ahead)
    assert (y[:, 16:] == SENTINEL).all()
    return y[:, :16].copy()


def expected_unit(W, x):
    y = np.empty((len(x), 16), F)
    for t in range(len(x)):
        law.matvec(W, np.ascontiguousarray(x[t]), y[t])
    return y


# -- rows -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_name", list(FLOAT_FORMATS))
@pytest.mark.parametrize("n", [32, 64, 1024, 3072])
def test_rows_times_tokens_is_the_laws_dot(format_name, n):
    kind_of = FLOAT_FORMATS[format_name]
    for T in range(1, 18):
        rng = np.random.default_rng(T)
        W, x = values("plain", rng, (16, n), format_name), values("plain", rng, (T, n))
        got = run_unit(kind_of, kind_of.pack(W), x, by=kind_of.storage.itemsize)
        assert same_bits(got, expected_unit(W, x)), f"T={T}"


@pytest.mark.parametrize("format_name", list(FLOAT_FORMATS))
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    T=st.integers(1, 17),
    n=st.sampled_from([32, 64, 96, 160]),
    of_w=st.sampled_from(KINDS),
    of_x=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    by=st.sampled_from([0, 4, 8, 60]),
    gap=st.sampled_from([64, 68, 256]),
    ahead=st.sampled_from([0, 64, 8192, 1 << 40]),
)
def test_rows_times_tokens_for_any_values_strides_and_alignments(format_name, T, n, of_w, of_x, seed, by, gap, ahead):
    kind_of = FLOAT_FORMATS[format_name]
    rng = np.random.default_rng(seed)
    W, x = values(of_w, rng, (16, n), format_name), values(of_x, rng, (T, n))
    got = run_unit(kind_of, kind_of.pack(W), x, y_token=gap, ahead=ahead, by=by)
    assert same_bits(got, expected_unit(W, x))


def test_rows_keep_subnormal_weights_inputs_and_results():
    for name, kind_of in FLOAT_FORMATS.items():
        rng = np.random.default_rng(1)
        W = values("subnormal", rng, (16, 32), name)
        assert (np.abs(W)[W != 0] < (2.0**-14 if name == "f16" else 2.0**-126)).all()
        x = values("plain", rng, (3, 32)) * F(1 if name != "f16" else 2.0**-115)
        got = run_unit(kind_of, kind_of.pack(W), x)
        assert (np.abs(got) < 2.0**-120).all()
        assert (got != 0).any()
        assert same_bits(got, expected_unit(W, x))


@pytest.mark.parametrize("format_name", list(FLOAT_FORMATS))
def test_rows_decode_every_finite_pattern(format_name):
    """A row of one weight and zeros, times one, is the weight: every 16-bit pattern goes through the decoder."""
    kind_of = FLOAT_FORMATS[format_name]
    if format_name == "f32":
        bits = np.random.default_rng(1).integers(0, 2**32, 1 << 14, dtype=np.uint32)
        stored = bits.view(F)
    else:
        stored = np.arange(1 << 16, dtype=np.uint16).view(kind_of.storage)
    truth = kind_of.unpack(stored)
    stored, truth = stored[np.isfinite(truth)], truth[np.isfinite(truth)]
    stored, truth = stored[: len(stored) // 16 * 16], truth[: len(truth) // 16 * 16]
    W = np.zeros((len(stored), 32), kind_of.storage)
    W[:, 21] = stored
    got = [run_unit(kind_of, W[first : first + 16], np.ones((1, 32), F))[0] for first in range(0, len(W), 16)]
    assert same_bits(np.concatenate(got), truth + F(0))  # an accumulator from +0 makes -0 +0


def test_an_unknown_format_code_does_nothing():
    unknown = replace(FORMATS["f32"], code=99)
    got = run_unit(unknown, np.ones((16, 32), F), np.ones((2, 32), F))
    assert (got == SENTINEL).all()


def test_compiled_code_and_python_agree_on_format_codes():
    codes = {name: kind_of.code for name, kind_of in FORMATS.items()}
    assert len(set(codes.values())) == len(codes)
    assert set(units.CODES) == set(codes.values())
    floats = {"f32": vectors.F32_CODE, "bf16": vectors.BF16_CODE, "f16": vectors.F16_CODE, "bf12": vectors.BF12_CODE}
    assert {name: codes[name] for name in FLOAT_FORMATS} == floats
    for kind_of in (FORMATS[name] for name in ("f32", "bf16", "f16")):
        assert vectors.BYTES_PER_16[kind_of.code] == 16 * kind_of.storage.itemsize == 2 * kind_of.bits_per_weight


# -- blocks: intrinsics need a compiled caller ------------------------------------------------------------------------


@jit()
def block_dot(a, a_step, b, b_step, n):
    return blocks.dot(a, a_step, b, b_step, n)


@jit()
def block_rms_norm(x, x_step, weight, y, y_step, n, eps):
    blocks.rms_norm(x, x_step, weight, y, y_step, n, eps)


@jit()
def block_rotate(x, cos, sin, n):
    blocks.rotate(x, cos, sin, n)


@jit()
def block_exp_minus(x, n, largest):
    blocks.exp_minus(x, n, largest)


@jit()
def block_weighted_sum(p, count, V, V_step, y, y_step, n):
    blocks.weighted_sum(p, count, V, V_step, y, y_step, n)


@jit()
def block_swiglu(gate, up, y, n):
    blocks.swiglu(gate, up, y, n)


@jit()
def block_add(x, x_step, y, y_step, n):
    blocks.add(x, x_step, y, y_step, n)


@jit()
def block_decode(code, x, y, y_step, n):
    blocks.decode(code, x, y, y_step, n)


@jit()
def law_exp_minus(x, largest, y):
    for k in range(len(x)):
        y[k] = law.exp(x[k] - largest)


def spread(x, step):
    """Blocks of 16 of ``x [n]`` laid ``step`` bytes apart, misaligned."""
    room = misaligned(np.full((len(x) // 16, step // 4), SENTINEL, F))
    room[:, :16] = x.reshape(-1, 16)
    return room


CASES = given(
    n=st.sampled_from([16, 32, 64, 128, 1024]),
    step=st.sampled_from([64, 128, 1088]),
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
)
RUNS = settings(max_examples=60, deadline=None, derandomize=True)


@RUNS
@CASES
def test_block_dot_is_the_laws(n, step, kind, seed):
    rng = np.random.default_rng(seed)
    a, b = values(kind, rng, n), values("plain", rng, n)
    A, B = spread(a, step), misaligned(b)
    assert same_bits(F(block_dot(at(A), step, at(B), 64, n // 16)), F(law.dot(a, b)))


@RUNS
@CASES
def test_block_rms_norm_is_the_laws(n, step, kind, seed):
    rng = np.random.default_rng(seed)
    x, weight, eps = values(kind, rng, n), values("plain", rng, n), F(1e-6)
    X, W, Y = spread(x, step), misaligned(weight), spread(np.zeros(n, F), step)
    block_rms_norm(at(X), step, at(W), at(Y), step, n // 16, eps)
    expected = np.empty(n, F)
    law.rms_norm(x, weight, eps, expected)
    assert same_bits(Y[:, :16].reshape(-1), expected)
    assert (Y[:, 16:] == SENTINEL).all()


@RUNS
@CASES
def test_block_rotate_is_the_laws(n, step, kind, seed):
    rng = np.random.default_rng(seed)
    x, cos, sin = values(kind, rng, 2 * n), values("plain", rng, n), values("plain", rng, n)
    X, C, S = misaligned(x), misaligned(cos), misaligned(sin)
    block_rotate(at(X), at(C), at(S), n // 16)
    law.rotate(x, cos, sin)
    assert same_bits(X, x)


@RUNS
@given(
    largest=st.floats(-100, 100, width=32),
    x=st.lists(st.floats(width=32), min_size=32, max_size=32),
)
def test_block_exp_is_the_laws_for_any_float(x, largest):
    x = np.array(x, F)
    X, expected = misaligned(x), np.empty(32, F)
    block_exp_minus(at(X), 2, F(largest))
    law_exp_minus(x, F(largest), expected)
    assert same_bits(X, expected)


def test_block_exp_is_the_laws_over_its_whole_range():
    bits = np.arange(0, 2**32, 4099, dtype=np.uint64).astype(np.uint32)
    x = bits[: len(bits) // 16 * 16].view(F).copy()
    expected = np.empty_like(x)
    law_exp_minus(x, F(0), expected)
    block_exp_minus(at(x), len(x) // 16, F(0))
    assert same_bits(x, expected)
    assert np.isnan(x).any()
    assert np.isinf(x).any()


@RUNS
@given(count=st.integers(1, 17), n=st.sampled_from([32, 128]), seed=st.integers(0, 2**32 - 1))
def test_block_weighted_sum_is_the_laws_attention(count, n, seed):
    rng = np.random.default_rng(seed)
    q, K, V = values("plain", rng, n), values("plain", rng, (count, n)), values("wide", rng, (count, n))
    scale, expected = F(n**-0.5), np.empty(n, F)
    law.attend(q, K, V, scale, expected)
    scores = np.array([F(law.dot(q, k)) * scale for k in K])
    p = np.zeros((count + 15) // 16 * 16, F)
    p[:count] = scores
    block_exp_minus(at(p), len(p) // 16, scores.max())
    total = F(0)
    for j in range(count):
        total = F(total + p[j])
    p = misaligned(p / total)
    Y, rows_of_v = spread(np.zeros(n, F), 192), misaligned(V)
    block_weighted_sum(at(p), count, at(rows_of_v), 4 * n, at(Y), 192, n // 16)
    assert same_bits(Y[:, :16].reshape(-1), expected)


@RUNS
@CASES
def test_block_swiglu_is_the_laws(n, step, kind, seed):
    rng = np.random.default_rng(seed)
    gate, up = values(kind, rng, n) * F(step), values("plain", rng, n)
    G, U, y, expected = misaligned(gate), misaligned(up), misaligned(np.empty(n, F)), np.empty(n, F)
    block_swiglu(at(G), at(U), at(y), n // 16)
    law.swiglu(gate, up, expected)
    assert same_bits(y, expected)


@RUNS
@CASES
def test_block_add_is_the_laws(n, step, kind, seed):
    rng = np.random.default_rng(seed)
    x, y = values(kind, rng, n), values("plain", rng, n)
    X, Y = spread(x, step), misaligned(y)
    block_add(at(X), step, at(Y), 64, n // 16)
    law.add(x, y)
    assert same_bits(X[:, :16].reshape(-1), x)


@pytest.mark.parametrize("format_name", ["f32", "bf16", "f16"])  # those that tables are looked up in
def test_block_decode_is_unpack_for_every_pattern(format_name):
    kind_of = FLOAT_FORMATS[format_name]
    if format_name == "f32":
        stored = np.arange(0, 2**32, 65537 * 3, dtype=np.uint64).astype(np.uint32)[:21840].view(F)
    else:
        stored = np.arange(1 << 16, dtype=np.uint16).view(kind_of.storage)
    stored = misaligned(stored, by=kind_of.storage.itemsize)
    y = spread(np.zeros(len(stored), F), 128)
    block_decode(kind_of.code, at(stored), at(y), 128, len(stored) // 16)
    assert same_bits(y[:, :16].reshape(-1), kind_of.unpack(stored))
    assert (y[:, 16:] == SENTINEL).all()


@pytest.mark.parametrize("seed", range(20))
def test_block_argmax_is_the_laws(seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, 48).astype(F)  # many ties
    logits[logits == 0] *= rng.choice([-1, 1])
    room = misaligned(logits)
    assert blocks.argmax(at(room), 48) == law.argmax(logits) == int(np.argmax(logits))
    logits[seed * 2] = [np.nan, np.inf, -np.inf][seed % 3]
    room = misaligned(logits)
    assert blocks.argmax(at(room), 48) == law.argmax(logits) == -1
