"""Q6_K: unpacking is the gguf package's, bit for bit, packing no worse than ggml's; what cannot be held is refused."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_models import same_bits, small_model

from cplab.errors import RowsNotInBlocksError, UnpackableError
from cplab.formats import FORMATS, superblock_fitting
from cplab.model import Model, is_streamed

F = np.float32
Q6 = FORMATS["q6_k"]
MOST = 4096  # steps of d up to the largest weight: -128 times -32


def dequantised(packed):
    rows = np.ascontiguousarray(packed).view(np.uint8).reshape(len(packed), -1)
    return gguf.quants.dequantize(rows, gguf.GGMLQuantizationType.Q6_K)


def random_blocks(rows, columns, seed=0):
    raw = np.random.default_rng(seed).integers(0, 256, (rows, columns // 256, 210), np.uint8)
    packed = raw.view(Q6.storage)[..., 0]
    packed["d"][~np.isfinite(packed["d"])] = 1
    return packed


def there_and_back(weights):
    return Q6.unpack(Q6.pack(weights))


def squares(weights, got):
    """Square error of each superblock."""
    return np.square(got.astype(np.float64) - weights).reshape(-1, 256).sum(1)


# -- unpacking --------------------------------------------------------------------------------------------------------


def test_unpacking_is_the_packages_for_any_blocks():
    packed = random_blocks(400, 1024)
    packed["d"][0] = [65504, -65504, 0, -0.0]
    packed["d"][1:257] = np.arange(1024, dtype=np.uint16).reshape(256, 4).view(np.float16)  # subnormal halves
    assert same_bits(Q6.unpack(packed), dequantised(packed))
    assert same_bits(Q6.unpack(packed[7]), Q6.unpack(packed)[7])


def test_scales_are_exact_products_and_so_are_weights():
    packed = random_blocks(8, 512, 1)
    packed["d"][0, 0], packed["scales"][0, 0, :3] = 2.0**-24, [-128, 127, 1]
    packed["d"][1, 0], packed["scales"][1, 0, 0] = 65504, -128
    quants, scales = Q6.blocks(packed)
    assert (quants.dtype, quants.shape, scales.dtype, scales.shape) == (np.int8, (8, 512), F, (8, 32))
    assert (quants.min(), quants.max()) == (-32, 31)
    weights = Q6.unpack(packed)
    for row in range(8):
        for k in range(0, 512, 7):
            d, scale = packed["d"][row, k // 256], packed["scales"][row, k // 256, k % 256 // 16]
            exact = Fraction(float(d)) * int(scale)
            assert Fraction(float(scales[row, k // 16])) == exact
            assert Fraction(float(weights[row, k])) == exact * int(quants[row, k])


def test_bits_of_a_weight_are_where_the_format_says():
    packed = np.zeros((1, 1), Q6.storage)
    packed["d"], packed["scales"] = 1, 1
    assert (Q6.unpack(packed) == -32).all()
    for k in range(256):
        c, j = k % 128 // 32, k % 32
        one = packed.copy()
        one["ql"][0, 0, 64 * (k // 128) + 32 * (c % 2) + j] = 5 << (4 * (c // 2))
        one["qh"][0, 0, 32 * (k // 128) + j] = 3 << (2 * c)
        expected = np.full(256, -32)
        expected[k] = 5 + 48 - 32
        assert Q6.unpack(one)[0].tolist() == expected.tolist()


def test_bits_per_weight_and_shapes():
    assert Q6.storage.itemsize * 8 == 256 * Q6.bits_per_weight
    assert Q6.stored_shape((5, 768)) == (5, 3)
    assert Q6.shape_of(Q6.pack(np.zeros((7, 5, 512), F))) == (7, 5, 512)
    with pytest.raises(RowsNotInBlocksError, match="rows of 320 weights are not made of whole blocks of 256, as q6_k"):
        Q6.pack(np.zeros((2, 320), F))


# -- packing ----------------------------------------------------------------------------------------------------------


def matrices():
    rng = np.random.default_rng(3)
    shape = 64, 2048
    yield "gaussian", rng.standard_normal(shape)
    yield "laplace", rng.laplace(size=shape)
    yield "student, 3 degrees", rng.standard_t(3, shape)
    yield "student, 1.5 degrees", rng.standard_t(1.5, shape)
    yield "outliers", rng.standard_normal(shape) * np.where(rng.random(shape) < 0.004, 20, 1)
    yield "groups of other sizes", rng.standard_normal(shape) * rng.lognormal(0, 1.5, (64, 128)).repeat(16, 1)


@pytest.mark.parametrize(("name", "weights"), list(matrices()))
def test_the_error_is_no_more_than_that_of_ggmls_own_quantiser(name, weights):
    """In square error, which is that of the output for inputs of one size; ggml's search weighs by the weight's own."""
    pytest.importorskip("llama_cpp", reason="ggml, which quantises Q6_K, comes with llama-cpp-python")
    from bench.quality.block_formats import _by_ggml

    weights = (0.02 * weights).astype(F)
    theirs = gguf.quants.dequantize(_by_ggml(gguf.GGMLQuantizationType.Q6_K, weights), gguf.GGMLQuantizationType.Q6_K)
    assert squares(weights, there_and_back(weights)).sum() < 0.97 * squares(weights, theirs).sum()


@pytest.mark.parametrize(("name", "weights"), list(matrices()))
def test_the_error_lies_between_that_of_eight_bits_and_of_five(name, weights):
    weights = (0.02 * weights).astype(F)
    away = [
        float(np.square(FORMATS[kind].unpack(FORMATS[kind].pack(weights)).astype(np.float64) - weights).sum())
        for kind in ("q8_0", "q6_k", "q5_0")
    ]
    assert away == sorted(away)


def test_what_the_format_holds_comes_back_near_and_again_the_same():
    held = Q6.unpack(random_blocks(16, 1024, 5))
    once = there_and_back(held)
    # Steps that the largest of 16 sets: half of one at most, where scales are not rounded to few bits.
    full = np.abs(held.reshape(-1, 16)).max(1)
    assert (
        np.abs(once - held).reshape(-1, 16).max(1) <= full / 31 + np.abs(held).reshape(-1, 256).max(1).repeat(16) / 255
    ).all()
    assert squares(held, once).sum() < 1e-3 * squares(held, np.zeros_like(held)).sum()
    again = there_and_back(once)
    assert squares(once, again).sum() <= squares(held, once).sum()


def test_a_block_does_not_see_its_neighbours_nor_the_array_that_it_is_in():
    weights = np.random.default_rng(6).standard_normal((4, 768)).astype(F)
    packed = Q6.pack(weights)
    weights[1, 256:512] *= F(1e4)
    other = Q6.pack(np.asfortranarray(weights))
    same = (packed == other).reshape(-1)
    assert same.tolist() == [index != 4 for index in range(12)]


def test_zeros_are_zeros():
    packed = Q6.pack(np.concatenate([np.zeros((1, 256), F), np.full((1, 256), -0.0, F)]))
    assert not packed["d"].any()
    assert same_bits(Q6.unpack(packed), np.zeros((2, 256), F))
    weights = np.zeros((1, 512), F)
    weights[0, 300] = 1
    back = there_and_back(weights)
    assert back[0, 300] == pytest.approx(1, rel=0.01)
    assert not np.delete(back, 300).any()


@pytest.mark.parametrize("size", [1e-45, 2.0**-126, 2.0**-40, 2.0**-26])
def test_what_is_too_small_for_a_scale_is_zeros(size):
    weights = (np.random.default_rng(0).uniform(-1, 1, (3, 256)) * size).astype(F)
    assert not there_and_back(weights).any()


@pytest.mark.parametrize("exponent", range(-16, 0, 3))
def test_scales_among_subnormal_halves_are_used_to_their_full(exponent):
    """d has few bits there, and a scale of 127 must not be too small for the largest weight."""
    for factor in (1.0, 1.3, 1.49, 1.51, 1.9):
        weights = (np.random.default_rng(1).uniform(-1, 1, (8, 256)) * factor * 2.0**exponent).astype(F)
        assert (squares(weights, there_and_back(weights)) < 3e-3 * squares(weights, np.zeros_like(weights))).all()


def test_beyond_the_scales_is_refused_and_the_last_before_is_not():
    weights = np.zeros((2, 3, 512), F)
    first_beyond = F(65520 * MOST)
    weights[1, 2, 300] = -np.nextafter(first_beyond, F(0))
    back = there_and_back(weights)
    assert back[1, 2, 300] == -65504 * MOST
    weights[1, 2, 300] = -first_beyond
    with pytest.raises(
        UnpackableError, match=rf"weight -{float(first_beyond):.9g} at \[1, 2, 300\].*float16 scales of q6_k"
    ):
        Q6.pack(weights)


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 15, 16, 200, 255])
def test_what_is_no_number_is_refused_with_its_place(bad, at):
    weights = np.ones((2, 512), F)
    weights[1, 256 + at] = bad
    with pytest.raises(UnpackableError, match=rf"the weight -?(nan|inf) at \[1, {256 + at}\] is no number"):
        Q6.pack(weights)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_anything_finite_and_in_reach_comes_back_finite(data):
    bits = data.draw(arrays(np.uint32, (1, 256), elements=st.integers(0, 2**32 - 1), fill=st.just(0)))
    highest = data.draw(st.integers(0, 153))  # magnitudes below 2**27, which some scale holds
    weights = (bits & 0x807FFFFF | (((bits >> 23) & 0xFF) * highest // 255) << 23).astype(np.uint32).view(F)
    packed = Q6.pack(weights)
    assert Q6.finite(packed)
    back = Q6.unpack(packed)
    assert same_bits(back, dequantised(packed))
    assert squares(weights, back) <= squares(weights, np.zeros_like(weights)) * (1 + 1e-9)


@given(x=st.floats(allow_nan=False, width=64))
def test_halves_are_rounded_as_numpy_rounds_them(x):
    with np.errstate(over="ignore", under="ignore"):
        assert superblock_fitting.half(x) == float(np.float16(x)) or abs(x) < 2.0**-1000


# -- models -----------------------------------------------------------------------------------------------------------


def test_a_model_is_rounded_matrix_by_matrix_and_counted():
    wide = small_model("wide")
    rounded, changed = wide.repacked("q6_k")
    counted = sum(
        int((rounded.f32(name).view(np.uint32) != wide.f32(name).view(np.uint32)).sum()) for name in wide.tensors
    )
    assert changed == counted > 0
    assert {t.format.name for n, t in rounded.tensors.items() if is_streamed(n)} == {"q6_k"}
    assert rounded.repacked("q6_k") == (rounded, 0)
    rounded.check_finite()


def test_a_scale_that_is_no_number_is_found():
    rounded, _ = small_model("wide").repacked("q6_k")
    rounded.tensors["lm_head.1.weight"].data["d"][255, 0] = np.inf
    with pytest.raises(Exception, match=r"lm_head\.1\.weight holds NaN or infinite"):
        rounded.check_finite()


def test_a_model_of_other_widths_is_refused_by_the_name_of_a_tensor(tiny):
    with pytest.raises(RowsNotInBlocksError, match=r"^model\.layers\.0\.self_attn\.q_proj\.weight: rows of 64 weights"):
        tiny.repacked("q6_k")
    held = {n: replace(t, format=FORMATS["f32"], data=t.f32()) for n, t in tiny.tensors.items()}
    with pytest.raises(RowsNotInBlocksError):
        Model("wide types", tiny.spec, held).repacked("q6_k")
