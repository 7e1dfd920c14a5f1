"""A checkpoint's folder is read as it was published, every value out of config.json, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from checkpoint_files import PREFIX, Folder, safetensors, stored
from small_models import same_bits, small_model

from cplab import cp_load
from cplab.__main__ import app
from cplab.commandline import run
from cplab.errors import UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Model
from cplab.oracle import Oracle
from cplab.sources import checkpoint, load_model, synthetic
from cplab.sources.talker import talker_of
from cplab.spec import PRESETS

PUBLISHED = Path(__file__).parents[2].parent / "shared" / "data" / "qwen3-tts-0.6b-customvoice.config.json"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1811626656\n"


def refused(folder, *words):
    with pytest.raises(UnreadableModelError) as caught:
        load_model(str(folder))
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.fixture
def whole():
    return Folder(small_model("tiny"))


# -- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_a_folder_is_the_model_that_was_written(tmp_path, name, shards, kind):
    model = small_model(name)
    back = load_model(str(Folder(model, kind).write(tmp_path / "m", shards)))
    assert back.spec == model.spec
    assert {t.format.name for t in back.tensors.values()} == {kind}
    assert back.digest() == model.digest()
    assert not back.synthetic


def test_bf16_is_kept_bit_for_bit_whatever_the_bits(tmp_path, whole):
    bits = np.arange(256 * 64, dtype=np.uint16) * 3  # NaN patterns and subnormals among them
    name = PREFIX + "lm_head.0.weight"
    whole.tensors[name] = ("BF16", (256, 64), bits.tobytes())
    data = load_model(str(whole.write(tmp_path / "m"))).tensors["lm_head.0.weight"].data
    assert data.dtype == np.uint16
    assert np.array_equal(data.ravel(), bits)


def test_tensors_are_mapped_and_not_copied(tmp_path, whole):
    model = load_model(str(whole.write(tmp_path / "m")))
    for tensor in model.tensors.values():
        base = tensor.data
        while isinstance(base.base, np.ndarray):
            base = base.base
        assert not tensor.data.flags.owndata
        assert not tensor.data.flags.writeable
        assert type(base.base).__name__ == "mmap"


@pytest.mark.parametrize("pad", [1, 2, 4])
def test_a_header_of_any_length_will_do(tmp_path, whole, tiny, pad):
    while (len(safetensors(whole.tensors, pad=pad)) - sum(len(d) for _, _, d in whole.tensors.values())) % 8 != pad:
        whole.tensors["x" * (len(whole.tensors) % 7 + 1) + str(len(whole.tensors))] = ("U8", (0,), b"")
    model = load_model(str(whole.write(tmp_path / "m", pad=pad)))
    assert model.digest() == tiny.digest()
    assert all(t.data.flags.aligned for t in model.tensors.values())


def test_the_codes_are_those_of_the_model(tmp_path):
    model = small_model("projected")
    folder = Folder(model).write(tmp_path / "m", shards=2)
    hidden = synthetic.hidden_states("x", 2, model.spec.talker_hidden)
    cb0 = synthetic.cb0_embeddings("x", 2, model.spec.talker_hidden)
    codes = cp_load(folder, threads=1).predict(hidden, cb0)
    assert np.array_equal(codes[1], Oracle(model).frame(hidden[1], cb0[1]).codes)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published config.json is not part of this repository")
def test_the_published_config_is_the_preset(tmp_path):
    (tmp_path / "config.json").write_text(PUBLISHED.read_text())
    (tmp_path / "model.safetensors").write_bytes(safetensors({}))
    assert checkpoint.open_checkpoint(tmp_path).spec() == PRESETS["0.6b"]
    refused(tmp_path, "no tensor is called talker.code_predictor.*")


# -- config.json: nothing is assumed ----------------------------------------------------------------------------------

KEYS = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "num_code_groups",
    "rope_theta",
    "rms_norm_eps",
    "hidden_act",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_missing_is_named_and_never_a_default(tmp_path, whole, key):
    del whole.code_predictor[key]
    refused(whole.write(tmp_path / "m"), f"talker_config.code_predictor_config.{key} is missing")


@pytest.mark.parametrize("key", ["hidden_size", "num_code_groups", "code_predictor_config"])
def test_a_key_of_the_talker_that_is_missing_is_named(tmp_path, whole, key):
    del whole.config["talker_config"][key]
    refused(whole.write(tmp_path / "m"), f"talker_config.{key} is missing")


@pytest.mark.parametrize("value", [None, "16", 16.0, True, 0, -1, [16]])
def test_a_count_that_is_none_is_refused(tmp_path, whole, value):
    whole.code_predictor["num_attention_heads"] = value
    refused(whole.write(tmp_path / "m"), "num_attention_heads is")


@pytest.mark.parametrize("value", [None, "1e6", True, 0, -1, float("nan")])
def test_a_theta_that_is_none_is_refused(tmp_path, whole, value):
    whole.code_predictor["rope_theta"] = value
    refused(whole.write(tmp_path / "m"), "rope_theta is")


def test_theta_is_config_jsons_and_changes_the_logits(tmp_path, whole, tiny):
    whole.code_predictor["rope_theta"] = 10000
    other = load_model(str(whole.write(tmp_path / "m")))
    assert other.spec.rope_theta == 1e4
    assert other.digest() != tiny.digest()
    hidden, cb0 = synthetic.hidden_states("x", 1, 64)[0], synthetic.cb0_embeddings("x", 1, 64)[0]
    assert not same_bits(Oracle(other).frame(hidden, cb0).logits, Oracle(tiny).frame(hidden, cb0).logits)


def test_the_classes_group_count_is_not_taken_for_the_checkpoints(tmp_path, whole):
    whole.code_predictor["num_code_groups"] = whole.config["talker_config"]["num_code_groups"] = 32
    refused(whole.write(tmp_path / "m"), "missing", "lm_head.30.weight", "model.codec_embedding.30.weight")


def test_talker_and_code_predictor_must_agree_on_groups(tmp_path, whole):
    whole.config["talker_config"]["num_code_groups"] = 4
    refused(whole.write(tmp_path / "m"), "num_code_groups is 4, its code predictor's 3")


def test_head_dim_is_not_hidden_over_heads(tmp_path, whole, tiny):
    assert tiny.spec.head_dim != tiny.spec.hidden // tiny.spec.heads
    whole.code_predictor["head_dim"] = tiny.spec.hidden // tiny.spec.heads
    refused(whole.write(tmp_path / "m"), "config.json and weights disagree", "self_attn.q_proj.weight is [128, 64]")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_act", "gelu"),
        ("attention_bias", True),
        ("use_sliding_window", True),
        ("tie_word_embeddings", True),
        ("layer_types", ["full_attention", "sliding_attention"]),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4.0}),
        ("rope_scaling", {"type": "linear", "factor": 2.0}),
    ],
)
def test_what_the_lab_does_not_compute_is_refused(tmp_path, whole, key, value):
    whole.code_predictor[key] = value
    refused(whole.write(tmp_path / "m"), key)


@pytest.mark.parametrize("value", [None, {"rope_type": "default"}, {"type": "default"}])
def test_plain_rope_may_be_said_in_words(tmp_path, whole, tiny, value):
    whole.code_predictor["rope_scaling"] = value
    assert load_model(str(whole.write(tmp_path / "m"))).digest() == tiny.digest()


# -- RoPE as transformers 5 writes it ---------------------------------------------------------------------------------


def by_transformers_5(section, **changes):
    """Move a section's RoPE to where transformers 5 has it."""
    scaling = section.pop("rope_scaling") or {}
    section["rope_parameters"] = scaling | {"rope_theta": section.pop("rope_theta"), "rope_type": "default"} | changes


def test_rope_parameters_say_theta_too(tmp_path, whole, tiny):
    by_transformers_5(whole.code_predictor)
    assert load_model(str(whole.write(tmp_path / "m"))).digest() == tiny.digest()
    whole.code_predictor["rope_parameters"]["rope_theta"] = 10000
    assert load_model(str(whole.write(tmp_path / "m"))).spec.rope_theta == 1e4


def test_the_talkers_rope_parameters_say_theta_too(tmp_path, whole):
    published, _ = talker_of(checkpoint.open_checkpoint(whole.write(tmp_path / "m")))
    talker = whole.config["talker_config"]
    by_transformers_5(talker)
    assert talker["rope_parameters"]["mrope_section"] == [8, 8, 8]
    assert talker_of(checkpoint.open_checkpoint(whole.write(tmp_path / "m")))[0] == published
    talker["rope_parameters"]["rope_theta"] = 500000
    assert talker_of(checkpoint.open_checkpoint(whole.write(tmp_path / "m")))[0].rope_theta == 5e5


@pytest.mark.parametrize("place", ["code predictor", "talker"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rope_type": "yarn", "factor": 4.0}, ["rope_parameters.rope_type is 'yarn'"]),
        ({"rope_type": ["default"]}, ["rope_parameters.rope_type is ['default']"]),
        ({"type": "linear"}, ["rope_parameters.type is 'linear'"]),
        ({"partial_rotary_factor": 0.5}, ["rope_parameters.partial_rotary_factor"]),
        ({"full_attention": {"rope_theta": 1e6}}, ["differs by type of layer (full_attention)"]),
        ({"rope_theta": None}, ["rope_parameters.rope_theta is None"]),
        ({"rope_theta": "1e6"}, ["rope_parameters.rope_theta is '1e6'"]),
    ],
)
def test_rope_parameters_of_another_rope_are_refused(tmp_path, whole, place, changes, words):
    by_transformers_5(whole.code_predictor if place == "code predictor" else whole.config["talker_config"], **changes)
    folder = whole.write(tmp_path / "m")
    at = "talker_config.code_predictor_config." if place == "code predictor" else "talker_config."
    with pytest.raises(UnreadableModelError) as caught:
        talker_of(checkpoint.open_checkpoint(folder)) if place == "talker" else load_model(str(folder))
    assert all(word in str(caught.value) for word in [at + "rope_parameters", *words]), caught.value


def test_theta_in_both_places_must_be_the_same(tmp_path, whole, tiny):
    whole.code_predictor["rope_parameters"] = {"rope_theta": 1e6, "rope_type": "default"}
    assert load_model(str(whole.write(tmp_path / "m"))).digest() == tiny.digest()
    whole.code_predictor["rope_parameters"]["rope_theta"] = 1e4
    refused(whole.write(tmp_path / "m"), "rope_theta is 1000000.0", "rope_parameters.rope_theta 10000.0")
    whole.code_predictor["rope_theta"] = None  # some writers leave the old key behind, empty
    assert load_model(str(whole.write(tmp_path / "m"))).spec.rope_theta == 1e4


@pytest.mark.parametrize("said", [None, {}, {"rope_type": "default"}])
def test_theta_that_stands_nowhere_is_refused(tmp_path, whole, said):
    del whole.code_predictor["rope_theta"]
    whole.code_predictor["rope_parameters"] = said
    refused(whole.write(tmp_path / "m"), "rope_theta is missing, and no default is taken for it")


def test_rope_parameters_without_theta_leave_it_to_the_old_key(tmp_path, whole, tiny):
    whole.code_predictor["rope_parameters"] = {"rope_type": "default"}
    assert load_model(str(whole.write(tmp_path / "m"))).digest() == tiny.digest()


# -- every tensor exactly once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2])
def test_missing_and_left_over_tensors_are_listed(tmp_path, whole, shards):
    for name in ("lm_head.1.weight", "model.layers.1.self_attn.k_norm.weight"):
        del whole.tensors[PREFIX + name]
    whole.tensors[PREFIX + "model.layers.0.self_attn.q_proj.bias"] = stored(np.zeros(128, np.float32))
    refused(
        whole.write(tmp_path / "m", shards),
        "missing: ",
        PREFIX + "lm_head.1.weight",
        PREFIX + "model.layers.1.self_attn.k_norm.weight",
        "left over: " + PREFIX + "model.layers.0.self_attn.q_proj.bias",
    )


def test_equal_widths_need_no_projection_and_take_none(tmp_path, whole):
    whole.tensors[PREFIX + "small_to_mtp_projection.weight"] = stored(np.eye(64, dtype=np.float32))
    refused(whole.write(tmp_path / "m"), "left over", "small_to_mtp_projection.weight")


@pytest.mark.parametrize("part", ["weight", "bias"])
def test_other_widths_need_the_projection_with_its_bias(tmp_path, part):
    folder = Folder(small_model("projected"))
    del folder.tensors[PREFIX + f"small_to_mtp_projection.{part}"]
    refused(folder.write(tmp_path / "m"), f"missing: {PREFIX}small_to_mtp_projection.{part}")


def test_tables_as_wide_as_the_talker_are_wanted(tmp_path):
    folder = Folder(small_model("projected"))
    name = PREFIX + "model.codec_embedding.0.weight"
    folder.tensors[name] = stored(np.zeros((48, 64), np.float32))
    refused(folder.write(tmp_path / "m"), f"{name} is [48, 64], by config.json [48, 96]")


def test_a_type_that_is_not_read_is_named(tmp_path, whole):
    name = PREFIX + "lm_head.0.weight"
    whole.tensors[name] = ("F8_E4M3", (256, 64), bytes(256 * 64))
    refused(whole.write(tmp_path / "m"), name, "F8_E4M3")


# -- what lies in a folder instead ------------------------------------------------------------------------------------


def test_a_folder_without_config(tmp_path, whole):
    (whole.write(tmp_path / "m") / "config.json").unlink()
    refused(tmp_path / "m", "no config.json", "Qwen3-TTS-12Hz")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, ["'qwen3', no Qwen3-TTS"]),
        ({"model_type": "qwen3_tts_tokenizer_25hz"}, ["a speech tokenizer"]),
        ({"model_type": "qwen3_tts_tokenizer_12hz"}, ["a speech tokenizer"]),
        ({"tokenizer_type": "qwen3_tts_tokenizer_25hz"}, ["25hz", "no code predictor"]),
        ({"model_type": None}, ["None"]),
        ({"talker_config": 3}, ["talker_config is 3"]),
    ],
)
def test_another_model_is_told_by_its_config(tmp_path, whole, changes, words):
    whole.config |= changes
    refused(whole.write(tmp_path / "m"), "config.json", *words)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff\xfe", LFS, b'{"a": ' * 100000])
def test_a_config_that_is_damaged(tmp_path, whole, text):
    (whole.write(tmp_path / "m") / "config.json").write_bytes(text)
    refused(tmp_path / "m", "config.json")


@pytest.mark.parametrize("kept", [0, 5, 8, 100, -1, -100000])
def test_a_half_downloaded_file(tmp_path, whole, kept):
    path = whole.write(tmp_path / "m") / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    refused(tmp_path / "m", "model.safetensors", "download" if kept in (0, 5) else "half downloaded")


def test_a_file_that_goes_on_after_its_end(tmp_path, whole):
    path = whole.write(tmp_path / "m") / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"<html>")
    refused(tmp_path / "m", "6 bytes more than its header says")


@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_a_git_lfs_pointer(tmp_path, whole, file):
    (whole.write(tmp_path / "m") / file).write_bytes(LFS)
    refused(tmp_path / "m", file, "git-lfs pointer", "git lfs pull")


def test_a_file_of_another_kind(tmp_path, whole):
    (whole.write(tmp_path / "m") / "model.safetensors").write_bytes(b"PK\3\4" + b"\xff" * 100)
    refused(tmp_path / "m", "no safetensors file")


def test_no_weights_at_all(tmp_path, whole):
    (whole.write(tmp_path / "m") / "model.safetensors").unlink()
    refused(tmp_path / "m", "neither model.safetensors nor model.safetensors.index.json")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4, 4]},
        {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]},
        {"dtype": "BF16", "shape": [2], "data_offsets": [2, 6]},
        {"dtype": "BF16", "shape": [3], "data_offsets": [0, 4]},
        {"dtype": "BF16", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 4]},
        {"dtype": 5, "shape": [2], "data_offsets": [0, 4]},
    ],
)
def test_a_header_that_makes_no_sense(tmp_path, whole, entry):
    text = json.dumps({"x": entry}).encode()
    whole.write(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
    refused(tmp_path / "m", "model.safetensors: ")


# -- shards -----------------------------------------------------------------------------------------------------------


def test_a_missing_shard_is_named(tmp_path, whole):
    (whole.write(tmp_path / "m", shards=3) / "model-00002-of-00003.safetensors").unlink()
    refused(tmp_path / "m", "model-00002-of-00003.safetensors missing")


def test_a_half_downloaded_shard(tmp_path, whole):
    path = whole.write(tmp_path / "m", shards=3) / "model-00003-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    refused(tmp_path / "m", path.name, "half downloaded")


@pytest.mark.parametrize("fault", ["elsewhere", "nowhere", "not there", "outside", "no map"])
def test_an_index_that_is_wrong(tmp_path, whole, fault):
    index = whole.write(tmp_path / "m", shards=2) / "model.safetensors.index.json"
    told = json.loads(index.read_text())
    places = told["weight_map"]
    name = next(iter(places))
    if fault == "elsewhere":
        places[name] = "model-00002-of-00002.safetensors"
    elif fault == "nowhere":
        del places[name]
    elif fault == "not there":
        places["talker.x"] = places[name]
    elif fault == "outside":
        places[name] = "../model.safetensors"
    else:
        told["weight_map"] = [1]
    index.write_text(json.dumps(told))
    refused(tmp_path / "m", {"outside": "weight_map", "no map": "weight_map", "not there": "talker.x"}.get(fault, name))


def test_the_file_itself_is_answered_with_the_folder(tmp_path, whole):
    refused(whole.write(tmp_path / "m") / "model.safetensors", "give the folder")


def test_the_command_line_says_it_in_one_line_and_exits_with_1(tmp_path, capsys):
    assert run(app, ["export", str(tmp_path), "-o", str(tmp_path / "cp.gguf")]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {tmp_path}: no config.json")
    assert err.count("\n") == 1
    assert not (tmp_path / "cp.gguf").exists()


def test_non_finite_weights_are_refused_at_the_usual_door(tmp_path, whole):
    values = np.zeros((256, 64), np.float32)
    values[3, 5] = np.nan
    whole.tensors[PREFIX + "lm_head.0.weight"] = stored(values)
    folder = whole.write(tmp_path / "m")
    with pytest.raises(UnreadableModelError, match=r"lm_head\.0\.weight holds NaN"):
        cp_load(folder, threads=1)


def test_a_model_of_f16_weights_runs_as_it_is(tmp_path, tiny):
    folder = Folder(tiny, "f16").write(tmp_path / "m")
    back = load_model(str(folder))
    assert isinstance(back, Model)
    assert back.tensors["model.norm.weight"].format is FORMATS["f16"]
