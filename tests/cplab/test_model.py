"""A Spec is complete and sensible; a Model is filled exactly; its digest is of the values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_models import projected_model, same_bits

from cplab.errors import UnreadableModelError
from cplab.formats import FLOAT_FORMATS, FORMATS
from cplab.model import Model, is_streamed
from cplab.spec import PRESETS, Spec


def stored_as(model, name):
    kind = FORMATS[name]
    return Model(
        "other", model.spec, {n: replace(t, format=kind, data=t.packed(kind)) for n, t in model.tensors.items()}
    )


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": 0},
        {"hidden": 72},
        {"intermediate": -16},
        {"head_dim": 100},
        {"vocab": 2047},
        {"layers": 0},
        {"heads": 0},
        {"kv_heads": 3},
        {"kv_heads": 0},
        {"groups": 1},
        {"talker_hidden": 2048},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(change):
    with pytest.raises(UnreadableModelError) as error:
        replace(PRESETS["0.6b"], **change)
    assert "\n" not in str(error.value)


def test_a_spec_has_no_defaults():
    with pytest.raises(TypeError):
        Spec(hidden=64)


def test_the_published_shape():
    spec = PRESETS["0.6b"]
    shapes = spec.shapes()
    assert len(shapes) == 5 * 11 + 1 + 15 + 15
    assert shapes["model.layers.4.self_attn.q_proj.weight"] == (2048, 1024)
    assert shapes["model.layers.0.mlp.down_proj.weight"] == (1024, 3072)
    assert shapes["lm_head.14.weight"] == (2048, 1024)
    assert (spec.passes, spec.positions) == (15, 16)
    assert spec.weights_per_pass == 5 * (2 * 2048 * 1024 + 2 * 1024 * 1024 + 3 * 3072 * 1024) + 2048 * 1024
    larger = PRESETS["1.7b"].shapes()
    assert set(larger) - set(shapes) == {"small_to_mtp_projection.weight", "small_to_mtp_projection.bias"}
    assert larger["small_to_mtp_projection.weight"] == (1024, 2048)
    assert larger["model.codec_embedding.0.weight"] == (2048, 2048)


def test_weights_per_pass_are_the_streamed_matrices(tiny):
    one_head = {n: t for n, t in tiny.tensors.items() if is_streamed(n) and not n.startswith("lm_head.1")}
    assert sum(t.data.size for t in one_head.values()) == tiny.spec.weights_per_pass


def test_a_model_is_filled_exactly(tiny):
    tensors = dict(tiny.tensors)
    norm = tensors.pop("model.norm.weight")
    with pytest.raises(UnreadableModelError, match=r"missing: model\.norm\.weight"):
        Model("m", tiny.spec, tensors)
    with pytest.raises(UnreadableModelError, match="left over: extra"):
        Model("m", tiny.spec, {**tiny.tensors, "extra": norm})
    with pytest.raises(UnreadableModelError, match=r"model\.norm\.weight has shape \[63\], the spec says \[64\]"):
        Model("m", tiny.spec, {**tiny.tensors, "model.norm.weight": replace(norm, data=norm.data[:63])})


def test_the_digest_is_of_the_values_not_of_the_container(tiny):
    assert stored_as(tiny, "f32").digest() == stored_as(tiny, "f16").digest() == tiny.digest()
    assert replace_one(tiny).digest() != tiny.digest()


def replace_one(model):
    name = "lm_head.0.weight"
    data = model.tensors[name].data.copy()
    data[3, 5] ^= 1
    return Model("m", model.spec, {**model.tensors, name: replace(model.tensors[name], data=data)})


@pytest.mark.parametrize("change", [{"rope_theta": 1e4}, {"rms_eps": 1e-5}])
def test_the_digest_is_of_the_spec_too(change):
    model = projected_model()
    assert Model("m", replace(model.spec, **change), model.tensors).digest() != model.digest()


def test_repacking_without_loss_gives_the_model_itself(tiny):
    for name in FLOAT_FORMATS:
        assert tiny.repacked(name) == (tiny, 0)


def test_repacking_rounds_streamed_matrices_only_and_counts(tiny):
    kind = FORMATS["f32"]
    tensors = {n: replace(t, format=kind, data=t.f32() * np.float32(1.0001)) for n, t in tiny.tensors.items()}
    model = Model("m", tiny.spec, tensors)
    rounded, changed = model.repacked("bf16")
    counted = 0
    for name, tensor in rounded.tensors.items():
        same = tensor.f32().view(np.uint32) == model.f32(name).view(np.uint32)
        if is_streamed(name):
            assert tensor.format is FORMATS["bf16"]
            counted += np.count_nonzero(~same)
        else:
            assert same.all()
    assert changed == counted > 0
    assert rounded.digest() != model.digest()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_numbers_are_refused_by_name(tiny, bad):
    tiny.check_finite()
    name = "model.layers.1.self_attn.k_norm.weight"
    data = tiny.f32(name).copy()
    data[31] = bad
    model = Model("m", tiny.spec, {**tiny.tensors, name: replace(tiny.tensors[name], data=data)})
    with pytest.raises(UnreadableModelError, match=rf"{name} holds NaN or infinite"):
        model.check_finite()


def test_packing_into_its_own_format_is_the_stored_array(tiny):
    tensor = tiny.tensors["lm_head.0.weight"]
    assert tensor.packed(FORMATS["bf16"]) is tensor.data
    assert same_bits(FORMATS["f16"].unpack(tensor.packed(FORMATS["f16"])), tensor.f32())
