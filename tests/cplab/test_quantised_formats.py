"""Q8_0, Q5_0 and Q4_0: packing is the gguf package's, bit for bit, unpacking exact; what cannot be held is refused."""

from __future__ import annotations

from dataclasses import replace

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from small_models import projected_model, same_bits

from cplab.errors import BadInputError, UnpackableError
from cplab.formats import FORMATS
from cplab.model import Model, is_streamed

F = np.float32
Q = gguf.GGMLQuantizationType
KINDS = ["q8_0", "q5_0", "q4_0"]
#: What divides the largest magnitude to make d; the most that a block may hold; the least whose d has an inverse.
STEPS = {"q8_0": 127, "q5_0": 16, "q4_0": 8}
LEAST = F(2.0**-128)


def by_the_package(kind, weights):
    """The package's blocks, as bytes ``[..., n / 32, bytes]``."""
    with np.errstate(all="ignore"):
        rows = gguf.quants.quantize(weights, Q[kind.upper()])
    return rows.reshape(*weights.shape[:-1], weights.shape[-1] // 32, -1)


def stored(kind, weights):
    packed = FORMATS[kind].pack(weights)
    return packed.view(np.uint8).reshape(*packed.shape, packed.itemsize)


def rows(kind):
    """Blocks ``[b, 32]`` that stand at edges."""
    rng = np.random.default_rng(4)
    step, normal = STEPS[kind], rng.standard_normal((200, 32)).astype(F)
    largest = np.nextafter(F(65520 * step), F(0))
    found = [normal * F(2.0**e) for e in (-100, -40, -20, -9, 0, 3)]
    found.append(np.zeros((1, 32), F))
    found.append(np.full((1, 32), -0.0, F))
    ties = (rng.integers(-2 * step, 2 * step, (100, 32)) / F(2)).astype(F)
    ties[:, 0], ties[:, 31] = step, rng.choice([-step, step], 100)
    found += [ties, ties * F(2.0**-30), np.nextafter(ties, F(0)), np.nextafter(ties, F(np.inf))]
    for beside in (np.nextafter(ties, F(0)), np.nextafter(ties, F(np.inf))):
        beside[:, 0] = step  # d is one, so that adding a half would round where the package does not
        found.append(beside)
    found.append(np.where(rng.random((50, 32)) < 0.5, F(-1), F(1)))  # several of largest magnitude, of both signs
    found += [np.array([[a] + [0] * 30 + [b]], F) for a in (-3, 3, 0.0, -0.0) for b in (-3, 3, 1)]
    found += [np.array([[largest] + [-largest] * 31], F), np.array([[-largest, largest / 2] + [1e-45] * 30], F)]
    # d among the subnormals, 1 / d still finite
    found.append(
        normal[:50] / np.abs(normal[:50]).max(1, keepdims=True) * F(step) * np.nextafter(LEAST, F(1)) * F(1.01)
    )
    return np.concatenate(found).astype(F)


@pytest.mark.parametrize("kind", KINDS)
def test_packing_is_the_packages_bit_for_bit(kind):
    weights = rows(kind)
    assert np.array_equal(stored(kind, weights), by_the_package(kind, weights).reshape(len(weights), 1, -1))
    rng = np.random.default_rng(1)
    matrix = (rng.standard_normal((3, 256, 96)) * rng.exponential(0.03, (3, 256, 1))).astype(F)
    for given_ in (matrix, np.asfortranarray(matrix), np.repeat(matrix, 2, 1)[:, ::2]):
        assert np.array_equal(stored(kind, given_), by_the_package(kind, matrix))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_packing_is_the_packages_on_anything_finite(kind, data):
    bits = data.draw(arrays(np.uint32, (2, 64), elements=st.integers(0, 2**32 - 1), fill=st.nothing()))
    scale = data.draw(st.integers(0, 140))  # exponents up to so many steps from the least
    weights = (bits & 0x807FFFFF | (((bits >> 23) & 0xFF) * scale // 255) << 23).astype(np.uint32).view(F)
    largest = np.abs(weights).reshape(-1, 32).max(-1)
    ordinary = (largest == 0) | (largest / F(STEPS[kind]) > LEAST)  # a d that underflows to 0 has no inverse either
    ours, theirs = (x.reshape(4, -1) for x in (stored(kind, weights), by_the_package(kind, weights)))
    assert np.array_equal(ours[ordinary], theirs[ordinary])
    assert not FORMATS[kind].unpack(FORMATS[kind].pack(weights)).reshape(-1, 32)[~ordinary].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("largest", [1e-45, -1e-45, LEAST, -LEAST])
def test_a_block_without_an_inverse_is_zeros(kind, largest):
    block = np.zeros((1, 32), F)
    block[0, 7] = F(largest) if abs(largest) < LEAST else F(largest) * F(STEPS[kind])
    block[0, 9] = block[0, 7] / F(2)
    packed = FORMATS[kind].pack(block)
    assert packed["d"].tobytes() == b"\0\0"
    quants, scales = FORMATS[kind].blocks(packed)
    assert not quants.any()
    assert not scales.any()
    following = np.nextafter(block, F(np.inf) * np.sign(largest))
    if abs(largest) == LEAST:
        assert FORMATS[kind].blocks(FORMATS[kind].pack(following * F(1.01)))[0].any()


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_scales_is_refused_and_the_last_before_is_not(kind):
    weights = np.zeros((2, 3, 64), F)
    first_beyond = F(65520 * STEPS[kind])
    weights[1, 2, 45] = -np.nextafter(first_beyond, F(0))
    assert FORMATS[kind].blocks(FORMATS[kind].pack(weights))[1].max() == 65504
    weights[1, 2, 45] = -first_beyond
    with pytest.raises(
        UnpackableError, match=rf"weight -{float(first_beyond):.9g} at \[1, 2, 45\].*float16 scales of {kind}"
    ):
        FORMATS[kind].pack(weights)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_with_its_place_and_tensor(tiny, kind, bad):
    name = "model.layers.1.self_attn.q_proj.weight"
    data = tiny.f32(name).copy()
    data[17, 33] = bad
    data[20, 2] = 1e30
    model = Model("m", tiny.spec, {**tiny.tensors, name: replace(tiny.tensors[name], format=FORMATS["f32"], data=data)})
    for pack in (lambda: model.repacked(kind), lambda: model.tensors[name].packed(FORMATS[kind])):
        with pytest.raises(
            UnpackableError, match=rf"{name}: the weight -?(nan|inf) at \[17, 33\] is no number"
        ) as error:
            pack()
        assert isinstance(error.value, BadInputError)
        assert str(error.value).count(name) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_made_of_whole_blocks(kind):
    with pytest.raises(UnpackableError, match=f"rows of 48 weights are not made of whole blocks of 32, as {kind}"):
        FORMATS[kind].pack(np.zeros((2, 48), F))


@pytest.mark.parametrize("kind", KINDS)
def test_unpacking_is_the_packages_for_any_blocks(kind):
    storage = FORMATS[kind].storage
    raw = np.random.default_rng(0).integers(0, 256, (4, 500, storage.itemsize), np.uint8)
    packed = np.ascontiguousarray(raw).view(storage)[..., 0]
    packed["d"][0] = np.arange(500, dtype=np.uint16).view(np.float16)  # subnormal halves
    packed["d"][1, :4] = [65504, -65504, 0, -0.0]
    packed["d"][~np.isfinite(packed["d"])] = 1
    expected = gguf.quants.dequantize(packed.view(np.uint8).reshape(4, -1), Q[kind.upper()])
    got = FORMATS[kind].unpack(packed)
    assert same_bits(got, expected)
    quants, scales = FORMATS[kind].blocks(packed)
    assert (quants.dtype, quants.shape, scales.dtype, scales.shape) == (np.int8, (4, 16000), np.float16, (4, 500))
    assert (quants.min(), quants.max()) == {"q8_0": (-128, 127), "q5_0": (-16, 15), "q4_0": (-8, 7)}[kind]
    # exact: 11 bits of a scale times 8 of an integer fit a float32
    product = np.repeat(scales.astype(np.float64), 32, -1) * quants
    assert np.array_equal(got.astype(np.float64), product)
    assert np.array_equal(FORMATS[kind].unpack(packed[2]), got[2])


def test_low_halves_come_first():
    packed = np.zeros(1, FORMATS["q4_0"].storage)
    packed["d"], packed["qs"][0] = 1, np.arange(16) | (15 - np.arange(16)) << 4
    assert FORMATS["q4_0"].unpack(packed).tolist() == [*range(-8, 8), *range(7, -9, -1)]


def test_fifth_bits_are_those_of_the_weights_in_turn():
    packed = np.zeros(1, FORMATS["q5_0"].storage)
    packed["d"], packed["qh"][0] = 1, [0x01, 0x80, 0, 0x80]
    expected = np.full(32, -16)
    expected[[0, 15, 31]] = 0
    assert FORMATS["q5_0"].unpack(packed).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_number_is_found(tiny, kind, bad):
    rounded, _ = tiny.repacked(kind)
    rounded.check_finite()
    rounded.tensors["lm_head.1.weight"].data["d"][255, 1] = bad
    with pytest.raises(Exception, match=r"lm_head\.1\.weight holds NaN or infinite"):
        rounded.check_finite()


@pytest.mark.parametrize("kind", KINDS)
def test_bits_per_weight_and_shapes(kind):
    form = FORMATS[kind]
    assert form.storage.itemsize * 8 == 32 * form.bits_per_weight
    assert form.stored_shape((5, 96)) == (5, 3)
    assert form.shape_of(form.pack(np.zeros((7, 5, 96), F))) == (7, 5, 96)
    assert form.code == {"q8_0": 3, "q5_0": 6, "q4_0": 4}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_rounded_matrix_by_matrix_and_counted(kind):
    model = projected_model()
    rounded, changed = model.repacked(kind)
    assert rounded.name == f"projected rounded to {kind}"
    counted = 0
    for name, tensor in rounded.tensors.items():
        assert tensor.shape == model.tensors[name].shape
        differs = int((tensor.f32().view(np.uint32) != model.f32(name).view(np.uint32)).sum())
        counted += differs
        assert (tensor.format is FORMATS[kind]) == is_streamed(name)
        assert is_streamed(name) or not differs
    assert changed == counted > 0
    assert rounded.repacked(kind) == (rounded, 0)


def test_a_model_that_a_quantised_format_holds_is_put_into_it_all_the_same(tiny):
    """Integer arithmetic wants blocks; where nothing changes, nothing is called lossy."""
    rounded, _ = tiny.repacked("q8_0")
    wide = {n: replace(t, format=FORMATS["f32"], data=t.f32()) for n, t in rounded.tensors.items()}
    again, changed = Model("wide", tiny.spec, wide).repacked("q8_0")
    assert changed == 0
    assert {t.format.name for n, t in again.tensors.items() if is_streamed(n)} == {"q8_0"}


def test_the_digest_of_blocks_tells_equal_values_apart(tiny):
    """2 d times q is d times 2 q, and yet another model to integer arithmetic."""
    rounded, _ = tiny.repacked("q8_0")
    name = "lm_head.0.weight"
    data = rounded.tensors[name].data.copy()
    data["qs"][0, 0] = 2 * np.arange(-16, 16)
    once = Model("a", tiny.spec, {**rounded.tensors, name: replace(rounded.tensors[name], data=data.copy())})
    data["qs"][0, 0] //= 2
    data["d"][0, 0] *= 2
    other = Model("b", tiny.spec, {**rounded.tensors, name: replace(rounded.tensors[name], data=data)})
    assert same_bits(once.f32(name), other.f32(name))
    assert once.digest() != other.digest()
    assert len({tiny.digest(), rounded.digest(), tiny.repacked("q4_0")[0].digest(), once.digest()}) == 4


def test_a_process_that_packs_nothing_imports_no_numba(fresh_process):
    assert not fresh_process("import json, sys, cplab.formats, cplab.model; print(json.dumps('numba' in sys.modules))")
