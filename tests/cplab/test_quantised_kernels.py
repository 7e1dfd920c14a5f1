"""The quantised kernels give the bits of the quantised law: any token count, width, value and alignment."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import same_bits
from test_kernels import SENTINEL, at, misaligned, panel

from cplab import arithmetic_quantised as law
from cplab.formats import FORMATS
from cplab.jit import jit
from cplab.kernels import packing, quantising, units
from cplab.kernels.quantised_lines import KINDS, STEP
from cplab.kernels.quantised_scales import RECORD_BYTES

F = np.float32
NAMES = ["q8_0", "q6_k", "q5_0", "q4_0"]
SCALES_KINDS = ["plain", "subnormal", "largest", "zeros"]
RUNS = settings(max_examples=60, deadline=None, derandomize=True)


def blocks(name, rng, rows, n, scales="plain"):
    """Quantised rows with every integer the format has, foreign ones (-128) included."""
    kind = FORMATS[name]
    packed = rng.integers(0, 256, (rows, n // kind.block, kind.storage.itemsize), np.uint8).view(kind.storage)[..., 0]
    d = rng.normal(0, 0.01, packed.shape)
    if scales == "subnormal":
        d = rng.integers(-1023, 1024, packed.shape) * 2.0**-24
    elif scales == "largest":
        d = rng.choice([-65504.0, 65504.0], packed.shape)
    elif scales == "zeros":
        d *= rng.random(packed.shape) < 0.5
    packed["d"] = d.astype(np.float16)
    return packed


@jit()
def quantised_panel(x, T, n, records, offset):
    good = True
    for t in range(T):
        good &= quantising.quantise(x, T, t, 0, n // 32, records, offset)
    return good


def records_of(name, x):
    """Records of quantised activations for tokens ``x [T, n]``, misaligned, and whether all was finite."""
    code, (T, n) = FORMATS[name].code, x.shape
    steps = packing.columns_padded(code, n) // STEP
    records = misaligned(np.zeros((steps, T, RECORD_BYTES), np.uint8))
    floats = misaligned(panel(x))
    return records, quantised_panel(at(floats), T, n, at(records), KINDS[code].offset)


def run_unit(name, packed, x, *, y_token=64, ahead=4096):
    kind, (T, n) = FORMATS[name], x.shape
    laid = packing.streamed(kind, packed)
    W = misaligned(laid.units)
    records, good = records_of(name, x)
    assert good
    y = misaligned(np.full((T, y_token // 4), SENTINEL, F))
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 9)(units.unit.address)
    call(laid.code, at(W), laid.row_bytes, n, at(records), T, at(y), y_token, ahead)
    assert (y[:, 16:] == SENTINEL).all()
    return y[:, :16].copy()


def quantised_by_law(x):
    q, d = np.empty(x.shape, np.int8), np.empty((len(x), x.shape[1] // 32), F)
    assert all(law.quantise(x[t], q[t], d[t]) for t in range(len(x)))
    return q, d


def expected_unit(name, packed, x):
    quants, scales = FORMATS[name].blocks(packed)
    q, d = quantised_by_law(x)
    y = np.empty((len(x), 16), F)
    for t in range(len(x)):
        law.matvec(quants, scales.astype(F), q[t], d[t], y[t])
    return y


@pytest.mark.parametrize(
    ("name", "n"),
    [(name, n) for name in NAMES for n in (32, 64, 96, 160, 256, 544, 768, 1024, 3072) if n % FORMATS[name].block == 0],
)
def test_rows_times_tokens_is_the_laws_dot(name, n):
    for T in range(1, 18):
        rng = np.random.default_rng(T)
        packed, x = blocks(name, rng, 16, n), rng.normal(0, 1, (T, n)).astype(F)
        assert same_bits(run_unit(name, packed, x), expected_unit(name, packed, x)), f"T={T}"


@pytest.mark.parametrize("name", NAMES)
@RUNS
@given(
    T=st.integers(1, 17),
    blocks_a_row=st.integers(1, 7),
    scales=st.sampled_from(SCALES_KINDS),
    size=st.sampled_from([1.0, 1e-38, 1e30, 3e5]),
    seed=st.integers(0, 2**32 - 1),
    gap=st.sampled_from([64, 68, 256]),
    ahead=st.sampled_from([0, 64, 8192, 1 << 40]),
)
def test_rows_times_tokens_for_any_values_and_strides(name, T, blocks_a_row, scales, size, seed, gap, ahead):
    rng, n = np.random.default_rng(seed), blocks_a_row * FORMATS[name].block
    packed = blocks(name, rng, 16, n, scales)
    x = (rng.normal(0, 1, (T, n)) * size).astype(F)
    x[:, : n // 2] *= rng.random((T, n // 2)) < 0.3
    assert same_bits(run_unit(name, packed, x, y_token=gap, ahead=ahead), expected_unit(name, packed, x))


@pytest.mark.parametrize("name", NAMES)
def test_the_largest_integers_do_not_saturate(name):
    kind = FORMATS[name]
    for byte in (0x80, 0x7F) if name == "q8_0" else (0, 255):  # the least weights, and the largest
        for sign in (1, -1):
            packed = np.full((16, 256 // kind.block, kind.storage.itemsize), byte, np.uint8).view(kind.storage)[..., 0]
            packed["d"] = 1
            if name == "q6_k":
                packed["scales"] = -128
            x = np.full((3, 256), sign * 127, F)
            got = run_unit(name, packed, x)
            assert same_bits(got, expected_unit(name, packed, x))
            assert abs(got[0, 0]) > 200000


@RUNS
@given(
    x=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=64, max_size=64),
    scale=st.sampled_from([0.0, 1.0, 2.0**-100]),
)
def test_activations_are_quantised_as_the_law_says(x, scale):
    x = np.array([x], F)
    x[:, 32:] *= F(scale)
    records, good = records_of("q8_0", x)
    q, d = quantised_by_law(x)
    assert good
    record = records[0, 0]
    in_turn = q.reshape(2, 8, 4).swapaxes(0, 1)
    np.testing.assert_array_equal(record[:64].view(np.int8), in_turn.reshape(-1))
    np.testing.assert_array_equal(record[64:128].view(np.int32), -128 * in_turn.sum(-1, dtype=np.int32).reshape(-1))
    assert same_bits(record[128:136].view(F), d[0])


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [0, 15, 16, 31, 32, 95])
def test_a_value_that_is_not_finite_is_found_wherever_it_stands(value, where):
    x = np.ones((2, 96), F)
    x[1, where] = value
    assert not records_of("q8_0", x)[1]
    x[1, where] = np.finfo(F).max
    assert records_of("q8_0", x)[1]


def test_a_row_takes_the_bytes_that_its_format_says():
    for name in NAMES:
        kind = FORMATS[name]
        assert packing.row_bytes(kind, 1024) * 8 == 1024 * kind.bits_per_weight
        laid = packing.streamed(kind, blocks(name, np.random.default_rng(1), 32, 1024))
        assert laid.units.shape == (2, 16 * packing.row_bytes(kind, 1024))
        assert (laid.row_bytes, laid.weights, laid.exceptions) == (packing.row_bytes(kind, 1024), 32 * 1024, 0)
