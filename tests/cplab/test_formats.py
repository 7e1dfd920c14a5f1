"""Weight formats: unpacking is exact, packing rounds to nearest even, and what a format changes is counted."""

from __future__ import annotations

import struct
from fractions import Fraction

import exact_float32 as exact
import numpy as np
import pytest
from small_models import same_bits

from cplab.errors import BadInputError
from cplab.formats import FLOAT_FORMATS, FORMATS, format_named

F = np.float32
EVERY = np.arange(1 << 16, dtype=np.uint16)
BF16, F16, F32 = (FORMATS[n] for n in ("bf16", "f16", "f32"))


def special(bits, mantissa_bits):
    """Which 16-bit patterns are infinite or NaN, and which are NaN."""
    mantissa = (1 << mantissa_bits) - 1
    all_ones = 0x7FFF & ~mantissa
    top = (bits & all_ones) == all_ones
    return top, top & ((bits & mantissa) != 0)


def rng_floats(seed, n=20000):
    return np.random.default_rng(seed).integers(0, 2**32, n, dtype=np.uint32).view(F)


def test_formats_are_found_by_name():
    assert list(FORMATS) == ["f32", "bf16", "f16", "bf12", "q8_0", "q6_k", "q5_0", "q4_0"]
    assert list(FLOAT_FORMATS) == ["f32", "bf16", "f16", "bf12"]
    assert format_named("bf16") is BF16
    with pytest.raises(BadInputError, match="f32, bf16, f16, bf12, q8_0, q6_k, q5_0, q4_0"):
        format_named("q8")


def test_bf16_unpacks_to_the_upper_half_of_a_float32():
    got = BF16.unpack(EVERY)
    np.testing.assert_array_equal(got.view(np.uint32), EVERY.astype(np.uint32) << 16)


def test_f16_unpacks_exactly():
    got = F16.unpack(EVERY.view(np.float16))
    truth = np.array([struct.unpack("<e", struct.pack("<H", b))[0] for b in EVERY.tolist()])
    with np.errstate(invalid="ignore"):  # widening a signalling NaN
        np.testing.assert_array_equal(got.astype(np.float64), truth)
    assert same_bits(np.copysign(F(1), got), np.where(EVERY >> 15, F(-1), F(1)))


def test_every_bf16_pattern_survives_and_a_nan_becomes_quiet():
    back = BF16.pack(BF16.unpack(EVERY))
    _, nan = special(EVERY, 7)
    np.testing.assert_array_equal(back, np.where(nan, EVERY | 0x40, EVERY))


def test_every_f16_pattern_survives_and_a_nan_stays_a_nan_of_its_sign():
    back = F16.pack(F16.unpack(EVERY.view(np.float16))).view(np.uint16)
    _, nan = special(EVERY, 10)
    np.testing.assert_array_equal(back[~nan], EVERY[~nan])
    assert special(back[nan], 10)[1].all()
    np.testing.assert_array_equal(back[nan] >> 15, EVERY[nan] >> 15)
    quiet = nan & ((EVERY & 0x200) != 0)
    np.testing.assert_array_equal(back[quiet], EVERY[quiet])


def test_float32_survives_as_it_is():
    x = rng_floats(1)
    np.testing.assert_array_equal(F32.unpack(F32.pack(x)).view(np.uint32), x.view(np.uint32))


@pytest.mark.parametrize(
    ("name", "bits", "lowest", "limit"),
    [("bf16", 8, -126, Fraction(2) ** 128), ("f16", 11, -14, Fraction(65536))],
)
def test_packing_rounds_to_nearest_even(name, bits, lowest, limit):
    kind = FORMATS[name]
    # Anything, ties between neighbours, and what stands beside the ties.
    held = kind.unpack(EVERY.view(kind.storage))
    held = held[np.isfinite(held) & (held > 0)]
    ties = ((held[:-1].astype(np.float64) + held[1:]) / 2).astype(F)[::7]
    values = np.concatenate([rng_floats(2, 4000), ties, np.nextafter(ties, F(0)), np.nextafter(ties, F(np.inf)), -ties])
    values = values[np.isfinite(values)]
    expected = np.array([exact.rounded(Fraction(float(v)), bits, lowest, limit) for v in values], F)
    expected = np.copysign(expected, values)
    assert same_bits(kind.unpack(kind.pack(values)), expected)


@pytest.mark.parametrize(
    ("name", "largest", "first_infinite"), [("f16", 65504, 65520), ("bf16", 3.3895314e38, 3.3961776e38)]
)
def test_beyond_the_range_is_infinite_and_found(name, largest, first_infinite):
    kind = FORMATS[name]
    ok, over = np.array([largest], F), np.array([first_infinite], F)
    assert same_bits(kind.unpack(kind.pack(ok)), ok)
    assert kind.finite(kind.pack(np.nextafter(over, F(0))))
    assert np.isinf(kind.unpack(kind.pack(over))[0])
    assert not kind.finite(kind.pack(over))


@pytest.mark.parametrize("name", list(FLOAT_FORMATS))
def test_finite_is_false_for_one_bad_value_anywhere(name):
    kind = FORMATS[name]
    good = kind.pack(np.linspace(-9, 9, 60, dtype=F).reshape(3, 20))
    assert kind.finite(good)
    for bad in (np.nan, -np.nan, np.inf, -np.inf):
        x = good.copy()
        x[1, 7] = kind.pack(np.array([bad], F))[0]
        assert not kind.finite(x)


@pytest.mark.parametrize(("name", "mantissa"), [("bf16", 7), ("f16", 10)])
def test_finite_agrees_with_the_patterns(name, mantissa):
    kind = FORMATS[name]
    top, _ = special(EVERY, mantissa)
    got = [kind.finite(EVERY[k : k + 1].view(kind.storage)) for k in range(0, 1 << 16, 31)]
    np.testing.assert_array_equal(got, ~top[::31])


def test_changed_counts_weights_that_come_back_with_other_bits():
    x = np.array([1, 1 + 2.0**-7, 1 + 2.0**-9, 2.0**-30, 1e5, 0.0, -0.0, 1 / 3], F)
    assert F32.changed(x) == 0
    assert BF16.changed(x) == 3  # 1 + 2**-9, 1e5, 1/3
    assert F16.changed(x) == 3  # 2**-30, 1e5, 1/3
    assert BF16.changed(x[:2].reshape(2, 1)) == 0


@pytest.mark.parametrize("name", list(FLOAT_FORMATS))
def test_packing_keeps_shape_and_leaves_its_input_alone(name):
    kind = FORMATS[name]
    x = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(F)
    before = x.copy()
    for source in (x, np.asfortranarray(x), x[:, ::2]):
        packed = kind.pack(source)
        assert packed.dtype == kind.storage
        assert packed.shape == source.shape
        assert kind.unpack(packed).dtype == F
    assert same_bits(x, before)
