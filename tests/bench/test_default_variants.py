"""What a sweep measures where nobody named variants."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.default_variants import default_variants
from cplab.errors import UnknownModelError
from cplab.export import model_part
from cplab.model import Model
from cplab.sources import load_model
from cplab.variant import variants

EVERYTHING = list(variants().values())


def stored(path, format_name):
    """A file of trained weights, as far as it says, with matrices in a format."""
    tiny = load_model("synthetic:tiny")
    model_part(Model("trained", tiny.spec, tiny.tensors), path, "trained", format_name).write()
    return str(path)


def left_out(model, files=()):
    kept, lines = default_variants(EVERYTHING, model, files)
    names = [one.name for one in EVERYTHING if one not in kept]
    assert [line.partition(":")[0] for line in lines] == names
    assert all("--variants" in line or "whole blocks" in line for line in lines)
    return dict(zip(names, lines, strict=True))


def test_a_seeded_model_is_one_format_stored_in_16_bits_and_its_heads_know_nothing():
    found = left_out("synthetic:tiny")
    for name, why in [
        ("kv_stored", "one format"),
        ("kv_f32", "stored in float32"),
        ("recompute_f32", "stored in float32"),
        ("numpy_f32", "stored in float32"),
        ("spec_bf16", "learnt nothing"),
        ("spec_bf12", "learnt nothing"),
        ("kv_q6_k", "rows of 64 weights are not made of whole blocks of 256"),
        ("kv_q5_0", "between those of q8_0 and q4_0"),
        ("spec_bf16_q4_0", "kv_q4_0 tells"),
        ("spec_bf16_q8_0", "kv_q8_0 tells"),
    ]:
        assert why in found[name]
    assert not {
        "kv_bf12",
        "kv_bf16",
        "kv_f16",
        "kv_q8_0",
        "kv_q4_0",
        "recompute_f16",
        "recompute_q8_0",
    } & set(found)
    assert not [name for name in found if name.startswith(("llama", "torch"))]


def test_heads_that_tell_later_codes_are_measured():
    assert not {"spec_bf16", "spec_bf12", "spec_f16", "spec_q8_0"} & left_out("synthetic:tiny-predictable").keys()


def test_a_file_may_be_a_mix_and_its_heads_may_have_learnt(tmp_path):
    found = left_out(stored(tmp_path / "cp.gguf", "bf16"))
    assert {name for name in found if "copy" not in found[name]} == {
        "kv_f32", "recompute_f32", "numpy_f32", "kv_q6_k", "kv_q5_0",
    }  # fmt: skip


def test_drafts_by_a_second_copy_are_measured_where_they_are_named(tmp_path):
    copies = {one.name for one in EVERYTHING if one.drafter in ("q4_0", "q8_0")}
    assert copies == {"spec_bf16_q4_0", "spec_bf16_q8_0", "spec_bf12_q4_0"}
    for model in ("synthetic:tiny", "synthetic:tiny-predictable", stored(tmp_path / "cp.gguf", "bf16")):
        assert copies <= left_out(model).keys()


def test_float32_weights_are_measured_as_they_are_stored(tmp_path):
    found = left_out(stored(tmp_path / "cp.gguf", "f32"))
    assert not found.keys() & {"kv_f32", "recompute_f32", "numpy_f32"}


def test_formats_between_two_others_are_measured_where_they_are_stored_or_named(tmp_path):
    assert {"kv_q6_k", "kv_q5_0"} <= left_out("synthetic:tiny-wide").keys()
    found = left_out(stored(tmp_path / "cp.gguf", "q5_0"))
    assert "kv_q5_0" not in found
    assert "whole blocks" in found["kv_q6_k"]


def test_what_was_given_as_a_file_is_measured():
    given = next(one for one in EVERYTHING if one.name == "kv_f32")
    assert "kv_f32" not in left_out("synthetic:tiny", [Path(given.source)])


def test_a_model_that_is_not_there():
    with pytest.raises(UnknownModelError):
        default_variants(EVERYTHING, "nowhere.gguf")
