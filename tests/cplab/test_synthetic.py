"""Seeded models: the same bits everywhere, values that every float format holds, and the oddities that they are for."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_float64 import Float64Predictor
from small_models import same_bits

from cplab.errors import CacheError, UnknownModelError, UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Model
from cplab.sources import load_model, synthetic
from cplab.spec import PRESETS

DIGESTS = json.loads(files("cplab.sources").joinpath("synthetic_digests.json").read_text())
NAMES = [
    "synthetic:0.6b",
    "synthetic:1.7b",
    "synthetic:tiny",
    "synthetic:tiny-wide",
    "synthetic:0.6b-spikes",
    "synthetic:0.6b-tails",
    "synthetic:0.6b-predictable",
    "synthetic:tiny-predictable",
]
#: The published width in one layer with one head, which is made in a second; a tensor depends on its own name only.
ONE_LAYER = replace(PRESETS["0.6b"], layers=1, groups=2)


def one_layer(name):
    return {t.name: t for t in synthetic.tensors(name, ONE_LAYER)}


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    return tmp_path


# -- the stream -------------------------------------------------------------------------------------------------------


def splitmix_value(name, index, exponent):
    """One value in Python's integers, from the recipe in the module's docstring."""
    import hashlib

    mask = (1 << 64) - 1
    z = (index * 0x9E3779B97F4A7C15 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    z ^= z >> 31
    total = 2 * sum((z >> shift) & 0xFFFF for shift in (0, 16, 32, 48)) - (4 * 65535 - 1)
    step = 1 << max(total.__abs__().bit_length() - 8, 0)
    return round(total / step) * step * 2.0**exponent


def test_values_are_the_recipes():
    got = synthetic.gaussian("a name", 70000, -20)
    for index in (*range(200), 65534, 65535, 65536, 69999):
        assert got[index] == splitmix_value("a name", index, -20)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(count=st.integers(0, 3000), start=st.integers(0, 200_000), exponent=st.integers(-24, -10))
def test_a_part_of_a_stream_is_the_stream(count, start, exponent):
    whole = synthetic.gaussian("n", start + count, exponent)
    assert same_bits(synthetic.gaussian("n", count, exponent, start=start), whole[start:])


def test_streams_of_other_names_are_others():
    a, b = synthetic.gaussian("a", 1000, -20), synthetic.gaussian("b", 1000, -20)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.15


def test_values_are_near_gaussian_odd_and_short():
    x = synthetic.gaussian("n", 1 << 18, -20).astype(np.float64)
    assert x.std() == pytest.approx(75674 * 2.0**-20, rel=0.01)
    assert abs(x.mean()) < 0.001
    assert (x != 0).all()
    mantissa, _ = np.frexp(x)
    assert (mantissa * 256 == np.round(mantissa * 256)).all()


@pytest.mark.parametrize("width", [64, 1024, 2048])
def test_inputs_have_the_recorded_scale_and_come_frame_by_frame(width):
    hidden = synthetic.hidden_states("n", 40, width)
    cb0 = synthetic.cb0_embeddings("n", 40, width)
    assert hidden.std() == pytest.approx(6.6, rel=0.05)
    assert cb0.std() == pytest.approx(0.58, rel=0.05)
    assert hidden.dtype == cb0.dtype == np.float32
    assert FORMATS["bf16"].changed(cb0) == 0
    assert FORMATS["bf16"].changed(hidden) > hidden.size / 2
    assert same_bits(synthetic.hidden_states("n", 3, width, start=30), hidden[30:33])
    assert same_bits(synthetic.cb0_embeddings("n", 3, width, start=30), cb0[30:33])
    assert len({row.tobytes() for row in hidden}) == 40


# -- digests ----------------------------------------------------------------------------------------------------------


def test_the_names():
    assert sorted(synthetic.names()) == sorted(NAMES) == sorted(DIGESTS)
    assert synthetic.spec_of("synthetic:0.6b-tails") == PRESETS["0.6b"]
    assert synthetic.spec_of("synthetic:1.7b") == PRESETS["1.7b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_digest_is_committed_for_every_tensor(name):
    assert DIGESTS[name]["tensors"].keys() == synthetic.spec_of(name).shapes().keys()
    assert all(len(d) == 12 for d in DIGESTS[name]["tensors"].values())


def test_every_tensor_of_tiny_has_its_committed_digest():
    found = {t.name: synthetic.short_digest(t) for t in synthetic.tensors("synthetic:tiny", PRESETS["tiny"])}
    assert found == DIGESTS["synthetic:tiny"]["tensors"]


@pytest.mark.parametrize(
    "name", ["synthetic:0.6b", "synthetic:0.6b-spikes", "synthetic:0.6b-tails", "synthetic:0.6b-predictable"]
)
def test_a_layer_of_the_published_shape_has_its_committed_digests(name):
    found = {n: synthetic.short_digest(t) for n, t in one_layer(name).items()}
    assert found == {n: DIGESTS[name]["tensors"][n] for n in found}


def test_the_projection_has_its_committed_digests():
    spec = replace(PRESETS["1.7b"], layers=1, groups=2, intermediate=16)
    found = {t.name: synthetic.short_digest(t) for t in synthetic.tensors("synthetic:1.7b", spec)}
    for name in ("small_to_mtp_projection.weight", "small_to_mtp_projection.bias", "lm_head.0.weight"):
        assert found[name] == DIGESTS["synthetic:1.7b"]["tensors"][name]


def test_other_bits_than_the_committed_are_refused(empty_cache, monkeypatch):
    monkeypatch.setitem(synthetic._SCALES, "lm_head", -19)
    with pytest.raises(UnreadableModelError, match=r"lm_head\.0\.weight came out with other bits"):
        load_model("synthetic:tiny")
    assert [p for p in empty_cache.rglob("*") if p.is_file()] == []


# -- what the models are for ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_bf16_and_f16_hold_every_value_but_those_of_tails(name):
    spec = PRESETS["tiny"] if ":tiny" in name else ONE_LAYER
    changed = {
        n: (FORMATS["bf16"].changed(t.f32()), FORMATS["f16"].changed(t.f32()))
        for n, t in {t.name: t for t in synthetic.tensors(name, spec)}.items()
    }
    assert {n for n, (bf16, _) in changed.items() if bf16} == set()
    lossy_in_f16 = {n for n, (_, f16) in changed.items() if f16}
    assert bool(lossy_in_f16) is name.endswith("tails")


def test_spikes_leave_the_range_of_f16_and_the_residual_stream_does_not():
    name = "synthetic:0.6b-spikes"
    tensors = one_layer(name)
    reference = Float64Predictor(ONE_LAYER, lambda n: tensors[n].f32())
    hidden, cb0 = synthetic.hidden_states(name, 1, 1024)[0], synthetic.cb0_embeddings(name, 1, 1024)[0]
    residual = reference.layers(np.stack([hidden, cb0]).astype(np.float64))
    intermediate = np.abs(reference.intermediates[0])
    assert intermediate[:, 5:13].max() > 65504
    assert np.delete(intermediate, np.s_[5:13], axis=1).max() < 1000
    assert np.abs(residual).max() < 100
    plain = Float64Predictor(ONE_LAYER, lambda n: one_layer_plain[n].f32())
    one_layer_plain = one_layer("synthetic:0.6b")
    plain.layers(np.stack([hidden, cb0]).astype(np.float64))
    assert np.abs(plain.intermediates[0]).max() < 1000


def test_tails_hold_zeros_many_exponents_and_loud_rows():
    tensors = one_layer("synthetic:0.6b-tails")
    W = tensors["model.layers.0.mlp.up_proj.weight"].f32()
    zeros = np.count_nonzero(W == 0) / W.size
    assert 1 / 700 < zeros < 1 / 350
    exponents = np.unique((W.view(np.uint32) >> 23) & 0xFF)
    assert len(exponents) > 100
    loud = np.abs(W).mean(1) / np.median(np.abs(W).mean(1))
    assert np.count_nonzero(loud > 8) == W.shape[0] // 128
    assert FORMATS["f16"].changed(W) > 1000
    for kind in ("bf16", "f32"):
        assert FORMATS[kind].finite(FORMATS[kind].pack(W))


# -- the cache --------------------------------------------------------------------------------------------------------


def test_an_unknown_name_lists_the_names():
    for name in ("synthetic:", "synthetic:0.7b", "synthetic:TINY"):
        with pytest.raises(UnknownModelError) as error:
            load_model(name)
        assert all(known in str(error.value) for known in NAMES)
        assert "\n" not in str(error.value)


def test_a_model_is_made_once_and_mapped_after(empty_cache, tiny):
    first = load_model("synthetic:tiny")
    (path,) = (p for p in empty_cache.rglob("*") if p.is_file())
    made = path.stat().st_mtime_ns
    second = load_model("synthetic:tiny")
    assert path.stat().st_mtime_ns == made
    assert first.digest() == second.digest() == tiny.digest()
    assert first.synthetic
    assert second.synthetic
    assert (first.name, second.name) == ("synthetic:tiny", "synthetic:tiny")
    assert isinstance(second, Model)


@pytest.mark.parametrize("damage", [b"", b"GGUF", b"nonsense" * 9, "half"])
def test_a_damaged_cache_is_made_again(empty_cache, tiny, damage):
    load_model("synthetic:tiny")
    (path,) = (p for p in empty_cache.rglob("*") if p.is_file())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == "half" else damage)
    again = load_model("synthetic:tiny")
    assert again.digest() == tiny.digest()
    assert [p for p in empty_cache.rglob("*") if p.is_file()] == [path]


def test_a_cache_that_cannot_be_written_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "a file" / "cache"))
    with pytest.raises(CacheError, match="CPLAB_CACHE"):
        load_model("synthetic:tiny")
