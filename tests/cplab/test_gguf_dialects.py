"""Every converter's files are read to the same model, and the traps that lie in them are refused by name."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
from dialect_files import File, in_dialect, write_all
from small_models import inputs, oracle_logits, same_bits, small_model

from cplab import cp_load
from cplab.errors import UnreadableModelError
from cplab.model import Model, is_streamed
from cplab.sources import load_model, synthetic
from cplab.sources.gguf_header import read_header
from cplab.sources.gguf_reading import surveyed
from cplab.spec import Spec
from cplab.variant import Trace

Q = gguf.GGMLQuantizationType
DIALECTS = ["qwentts.cpp", "predict-woo", "CrispASR", "llama.cpp mmproj", "Kazeia"]
WITHOUT_PROJECTION = [*DIALECTS, "HaujetZhao"]
THETA = {
    "qwentts.cpp": "qwen3-tts.code_pred.rope.freq_base",
    "predict-woo": "qwen3-tts.rope.freq_base",
    "CrispASR": "qwen3tts.talker.rope_theta",
    "llama.cpp mmproj": "clip.gen.audio.rope.freq_base",
    "Kazeia": "qwen3.rope.freq_base",
    "HaujetZhao": "qwen3.rope.freq_base",
}
#: What a refusal names: the code predictor's own key.
THETA_NAMED = THETA | {"predict-woo": "qwen3-tts.code_pred.rope.freq_base", "CrispASR": "qwen3tts.code_pred.rope_theta"}
GROUPS = {
    "qwentts.cpp": "qwen3-tts.num_code_groups",
    "predict-woo": "qwen3-tts.num_code_groups",
    "CrispASR": "qwen3tts.code_pred.n_code_groups",
    "Kazeia": "qwen3-tts.num_code_groups",
    "HaujetZhao": "qwen3.num_code_groups",
}
#: Wide enough for rows of 256, which K-quants need.
WIDE = Spec(
    hidden=256,
    intermediate=512,
    layers=1,
    heads=4,
    kv_heads=2,
    head_dim=64,
    vocab=32,
    groups=3,
    rope_theta=1e6,
    rms_eps=1e-6,
    talker_hidden=256,
    projected=False,
)


def wide_model():
    return Model("wide", WIDE, {t.name: t for t in synthetic.tensors("synthetic:wide", WIDE)})


def written(tmp_path, dialect, model, kind="bf16"):
    return write_all(tmp_path / "cp_f16.gguf", *in_dialect(dialect, model, kind))


def refused(path, *words):
    with pytest.raises(UnreadableModelError) as caught:
        load_model(str(path))
    said = str(caught.value)
    assert "\n" not in said
    for word in (str(path), *words):
        assert word in said, said
    return said


CASES = [(d, "tiny") for d in WITHOUT_PROJECTION] + [(d, "projected") for d in DIALECTS]


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_a_dialect_is_read_to_the_same_model(tmp_path, dialect, name, kind):
    model = small_model(name)
    path = written(tmp_path, dialect, model, kind)
    survey = surveyed(path)
    assert (survey.dialect.name, survey.problems) == (dialect, [])
    back = load_model(str(path))
    assert back.spec == model.spec
    assert back.digest() == model.digest()
    assert {t.format.name for t in back.tensors.values() if len(t.shape) == 2} == {kind}


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_codes_are_those_of_the_model(tmp_path, dialect, name):
    model = small_model(name)
    path = written(tmp_path, dialect, model)
    arrays = inputs(model, 2)
    trace = Trace()
    codes = cp_load(path, "kv_f32", 1).predict(*arrays, trace=trace)
    expected = oracle_logits(model, *arrays)
    np.testing.assert_array_equal(codes, expected[0])
    assert same_bits(trace.logits, expected[1])


# -- where a Spec's numbers come from ---------------------------------------------------------------------------------


def test_the_talkers_keys_do_not_stand_in_where_the_converter_writes_the_predictors(tmp_path):
    model = small_model("tiny")
    survey = surveyed(written(tmp_path, "qwentts.cpp", model))
    assert survey.origins["rope_theta"] == "qwen3-tts.code_pred.rope.freq_base"
    assert survey.values["rope_theta"] == model.spec.rope_theta
    file, _ = in_dialect("qwentts.cpp", model)
    del file.keys["qwen3-tts.code_pred.rope.freq_base"]
    refused(file.write(tmp_path / "m.gguf"), "metadata key qwen3-tts.code_pred.rope.freq_base is missing")


def test_the_talkers_keys_stand_in_where_the_reader_uses_them_and_it_is_said(tmp_path):
    survey = surveyed(written(tmp_path, "predict-woo", small_model("projected")))
    assert survey.origins["rope_theta"] == "qwen3-tts.rope.freq_base (the talker's)"
    assert survey.origins["hidden"] == "rows of code_pred.output_norm.weight"
    assert survey.origins["layers"] == "qwen3-tts.code_predictor.layer_count"


def test_the_predictors_own_keys_go_before_the_talkers(tmp_path):
    model = small_model("tiny")
    file, _ = in_dialect("predict-woo", model)
    file.keys["qwen3-tts.code_pred.rope.freq_base"] = model.spec.rope_theta
    file.keys["qwen3-tts.rope.freq_base"] = 10000.0
    assert load_model(str(file.write(tmp_path / "m.gguf"))).spec == model.spec


def test_layer_count_in_place_of_block_count(tmp_path):
    model = small_model("tiny")
    file, _ = in_dialect("qwentts.cpp", model)
    file.keys["qwen3-tts.code_pred.layer_count"] = file.keys.pop("qwen3-tts.code_pred.block_count")
    assert load_model(str(file.write(tmp_path / "m.gguf"))).spec == model.spec


def test_tensors_of_one_dialect_under_the_keys_of_another(tmp_path):
    model = small_model("projected")
    file, _ = in_dialect("CrispASR", model)
    keys, _ = in_dialect("qwentts.cpp", model)
    file.architecture, file.keys = keys.architecture, keys.keys
    assert load_model(str(file.write(tmp_path / "m.gguf"))).digest() == model.digest()
    del file.keys["qwen3-tts.code_pred.rope.freq_base"]
    refused(file.write(tmp_path / "m.gguf"), "metadata key qwen3-tts.code_pred.rope.freq_base is missing")


def test_codebooks_of_a_stack_count_themselves(tmp_path):
    survey = surveyed(written(tmp_path, "llama.cpp mmproj", small_model("projected")))
    assert (survey.values["groups"], survey.origins["groups"]) == (5, "stack of a.gen.code.head.weight")


# -- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", THETA)
def test_no_theta_is_refused_and_never_guessed(tmp_path, dialect):
    file, beside = in_dialect(dialect, small_model("tiny"))
    del file.keys[THETA[dialect]]
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"metadata key {THETA_NAMED[dialect]} is missing")


@pytest.mark.parametrize("dialect", GROUPS)
def test_no_group_count_is_refused_and_never_guessed(tmp_path, dialect):
    file, beside = in_dialect(dialect, small_model("tiny"))
    for part in (file, *beside.values()):
        part.keys.pop(GROUPS[dialect], None)
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"metadata key {GROUPS[dialect]} ", "is missing")


@pytest.mark.parametrize("dialect", ["HaujetZhao", "Kazeia", "qwentts.cpp"])
def test_head_width_is_read_and_not_divided(tmp_path, dialect):
    model = small_model("tiny")
    assert model.spec.head_dim != model.spec.hidden // model.spec.heads
    file, beside = in_dialect(dialect, model)
    key = next(k for k in file.keys if k.endswith("attention.key_length"))
    assert load_model(str(write_all(tmp_path / "cp.gguf", file, beside))).spec.head_dim == model.spec.head_dim
    del file.keys[key]
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"metadata key {key} is missing")


@pytest.mark.parametrize(
    ("dialect", "lost"),
    [
        ("qwentts.cpp", "code_pred.blk.1.ffn_up.weight"),
        ("predict-woo", "code_pred.codec_embd.1.weight"),
        ("CrispASR", "code_pred.output.0.weight"),
        ("HaujetZhao", "token_embd.weight"),
        ("llama.cpp mmproj", "a.gen.code.blk.0.ln2.weight"),
        ("llama.cpp mmproj", "a.gen.code.embd.weight"),
        ("Kazeia", "blk.1.attn_v.weight"),
    ],
)
def test_a_missing_tensor(tmp_path, dialect, lost):
    file, beside = in_dialect(dialect, small_model("tiny"))
    del file.tensors[lost]
    file.keys["qwen3-tts.talker.embedding_length"] = 64
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"missing {lost}")


@pytest.mark.parametrize(
    ("dialect", "extra"),
    [
        ("qwentts.cpp", "code_pred.blk.2.attn_q.weight"),
        ("predict-woo", "code_pred.codec_embd.2.weight"),
        ("CrispASR", "code_pred.lm_head.0.weight"),
        ("HaujetZhao", "blk.2.attn_q.weight"),
        ("HaujetZhao", "rope_freqs.weight"),
        ("llama.cpp mmproj", "a.gen.code.rope_freqs.weight"),
        ("llama.cpp mmproj", "a.gen.code.proj_in.bias"),
        ("Kazeia", "blk.2.attn_q.weight"),
    ],
)
def test_a_left_over_tensor(tmp_path, dialect, extra):
    file, beside = in_dialect(dialect, small_model("tiny"))
    file.tensors[extra] = (np.zeros((16, 16), np.float32), "f32")
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"left over {extra}")


@pytest.mark.parametrize("dialect", ["qwentts.cpp", "predict-woo", "CrispASR", "llama.cpp mmproj"])
def test_other_models_tensors_in_the_file_are_passed_over(tmp_path, dialect):
    survey = surveyed(written(tmp_path, dialect, small_model("tiny")))
    foreign = [t.name for t in survey.tensors.values() if survey.is_foreign(t)]
    assert len(foreign) > 1
    assert {p.stored.name for p in survey.placements.values()} | set(foreign) == set(survey.tensors)


def test_no_tensor_is_used_twice(tmp_path):
    for dialect in WITHOUT_PROJECTION:
        survey = surveyed(written(tmp_path, dialect, small_model("tiny")))
        places = [(p.stored.file, p.stored.name, p.part) for p in survey.placements.values()]
        assert len(set(places)) == len(places) == len(survey.spec.shapes())


@pytest.mark.parametrize("dialect", WITHOUT_PROJECTION)
def test_a_wrong_shape(tmp_path, dialect):
    file, beside = in_dialect(dialect, small_model("tiny"))
    name = next(n for n in file.tensors if n.endswith("ffn_down.weight"))
    file.tensors[name] = (np.zeros((192, 64), np.float32), "f32")
    refused(write_all(tmp_path / "cp.gguf", file, beside), f"{name} has shape [192, 64], the metadata says [64, 192]")


def test_a_stack_of_the_wrong_count(tmp_path):
    file, _ = in_dialect("llama.cpp mmproj", small_model("projected"))
    tables, kind = file.tensors["a.gen.code.embd.weight"]
    file.tensors["a.gen.code.embd.weight"] = (tables[:-1], kind)
    refused(file.write(tmp_path / "m.gguf"), "a.gen.code.embd.weight has shape [3, 48, 96]", "[4, 48, 96]")


def test_heads_stacked_wrongly_against_a_key(tmp_path):
    file, _ = in_dialect("llama.cpp mmproj", small_model("projected"))
    file.keys["clip.gen.audio.num_code_groups"] = 16
    refused(file.write(tmp_path / "m.gguf"), "a.gen.code.head.weight has shape [4, 48, 64]", "[15, 48, 64]")


def test_a_concatenation_that_the_groups_cannot_share(tmp_path):
    file, _ = in_dialect("HaujetZhao", small_model("tiny"))
    file.keys["qwen3.num_code_groups"] = 16
    refused(file.write(tmp_path / "m.gguf"), "output.weight has 512 rows, which 15 codebooks cannot share")


def test_tables_and_heads_concatenated_differently(tmp_path):
    file, _ = in_dialect("HaujetZhao", small_model("tiny"))
    tables, kind = file.tensors["token_embd.weight"]
    file.tensors["token_embd.weight"] = (tables[:256], kind)
    refused(file.write(tmp_path / "m.gguf"), "token_embd.weight has shape [256, 64], the metadata says [512, 64]")


def test_tables_that_were_projected_without_a_projection(tmp_path):
    file, _ = in_dialect("HaujetZhao", small_model("tiny"))
    path = file.write(tmp_path / "m.gguf")
    np.save(tmp_path / "proj_weight.npy", np.zeros((64, 96), np.float32))
    refused(path, "projected to 64 already (proj_weight.npy lies beside it)", "hidden and cb0_embed")
    (tmp_path / "proj_weight.npy").unlink()
    file.keys["qwen3-tts.talker.embedding_length"] = 96
    refused(file.write(path), "projected to 64 already (the talker is 96 wide)")


def test_a_projection_that_a_file_lost(tmp_path):
    file, _ = in_dialect("llama.cpp mmproj", small_model("projected"))
    for kind in ("weight", "bias"):
        del file.tensors[f"a.gen.code.proj_in.{kind}"]
    refused(file.write(tmp_path / "m.gguf"), "talker width 96 differs from 64", "small_to_mtp_projection")


def test_a_qwen3_language_model(tmp_path):
    file, _ = in_dialect("HaujetZhao", small_model("tiny"))
    del file.keys["qwen3.num_code_groups"]
    said = refused(file.write(tmp_path / "m.gguf"), "qwen3.num_code_groups", "a language model has none")
    assert "output.weight" not in said
    del file.tensors["output.weight"]
    refused(file.write(tmp_path / "m.gguf"), "layers alone, and no m_heads (.gguf or .npy) beside them")


def test_a_full_file_without_a_code_predictor(tmp_path):
    file = File("qwen3-tts")
    file.tensors["talker.codec_embd.weight"] = (np.zeros((16, 64), np.float32), "f32")
    refused(file.write(tmp_path / "m.gguf"), "no tensor of a code predictor in it")


@pytest.mark.parametrize("dialect", WITHOUT_PROJECTION)
def test_a_truncated_file(tmp_path, dialect):
    path = written(tmp_path, dialect, small_model("tiny"))
    last = max(t.offset + t.nbytes for t in read_header(path).tensors.values())
    whole = path.read_bytes()
    for end in (last - 1, last // 2, 1000, 100):
        path.write_bytes(whole[:end])
        refused(path, "cut short")


# -- what a person adds where a converter wrote nothing ---------------------------------------------------------------


def test_what_the_file_lacks_may_stand_beside_it(tmp_path):
    model = small_model("tiny")
    for dialect, key, said in (
        ("llama.cpp mmproj", "clip.gen.audio.rope.freq_base", {"rope_theta": 1e6}),
        ("HaujetZhao", "qwen3.num_code_groups", {"groups": 3}),
    ):
        file, _ = in_dialect(dialect, model)
        del file.keys[key]
        path = file.write(tmp_path / "m.gguf")
        refused(path, key, "m.spec.json")
        (tmp_path / "m.spec.json").write_text(json.dumps(said))
        assert load_model(str(path)).digest() == model.digest()
        assert surveyed(path).origins[next(iter(said))] == "m.spec.json"
        (tmp_path / "m.spec.json").unlink()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('{"rope_theta": 10000}', "m.spec.json says rope_theta 10000, the file 1000000.0"),
        ('{"theta": 1}', "must hold numbers by these names"),
        ('{"groups": "16"}', "must hold numbers by these names"),
        ("[]", "must hold numbers by these names"),
        ("{", "m.spec.json cannot be read"),
    ],
)
def test_what_stands_beside_it_never_overrules_it(tmp_path, text, word):
    file, _ = in_dialect("qwentts.cpp", small_model("tiny"))
    (tmp_path / "m.spec.json").write_text(text)
    refused(file.write(tmp_path / "m.gguf"), word)


# -- Kazeia's parts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", ["cp_f16", "cp"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_parts_as_arrays(tmp_path, name, dtype, stem):
    model = small_model(name)
    file, _ = in_dialect("Kazeia", model)
    arrays = {
        f"{stem}_{part}.npy": np.stack([model.f32(f"{ours}.{i}.weight") for i in range(model.spec.groups - 1)])
        for part, ours in (("heads", "lm_head"), ("codec_embd", "model.codec_embedding"))
    }
    if model.spec.projected:
        for kind in ("weight", "bias"):
            arrays[f"{stem}_mtp_proj_{kind}.npy"] = model.f32(f"small_to_mtp_projection.{kind}")
    path = write_all(tmp_path / "cp_f16.gguf", file, {n: a.astype(dtype) for n, a in arrays.items()})
    assert load_model(str(path)).digest() == model.digest()


def test_parts_that_are_not_there(tmp_path):
    file, beside = in_dialect("Kazeia", small_model("tiny"))
    del beside["cp_codec_embd.gguf"]
    path = write_all(tmp_path / "cp_f16.gguf", file, beside)
    refused(path, "no cp_f16_codec_embd or cp_codec_embd or cp_codec_embd_f16 (.gguf or .npy) beside them")


def test_a_part_that_is_there_twice(tmp_path):
    file, beside = in_dialect("Kazeia", small_model("tiny"))
    path = write_all(tmp_path / "cp_f16.gguf", file, beside | {"cp_f16_heads.npy": np.zeros((2, 256, 64), np.float32)})
    refused(path, "cp_f16_heads.npy and cp_heads.gguf are both there")


def test_a_part_that_is_cut_short_or_no_array(tmp_path):
    file, beside = in_dialect("Kazeia", small_model("tiny"))
    del beside["cp_heads.gguf"]
    path = write_all(tmp_path / "cp_f16.gguf", file, beside | {"cp_heads.npy": np.zeros((2, 256, 64), np.float32)})
    heads = tmp_path / "cp_heads.npy"
    heads.write_bytes(heads.read_bytes()[:-1])
    refused(path, "cp_heads.npy: cut short")
    heads.write_bytes(b"PK\3\4")
    refused(path, "cp_heads.npy: no .npy that can be read")
    np.save(heads, np.zeros((2, 256, 64), np.int32))
    refused(path, "float32 or float16")


# -- quantised types --------------------------------------------------------------------------------------------------


def random_blocks(kind, shape):
    """Bytes of a quantised matrix whose scales are small halves and whose other bytes are anything."""
    block, nbytes = gguf.GGML_QUANT_SIZES[Q[kind]]
    rows = np.random.default_rng(1).integers(0, 256, (*shape[:-1], shape[-1] // block, nbytes), np.uint8)
    scale = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    for at in {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "Q3_K": (108,), "Q2_K": (80, 82), "IQ4_XS": (0,)}[kind]:
        rows[..., at : at + 2] = scale
    return rows.reshape(*shape[:-1], -1)


@pytest.mark.parametrize("dialect", ["qwentts.cpp", "HaujetZhao", "llama.cpp mmproj"])
@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0", "Q5_1"])
def test_quantised_types_are_what_the_gguf_package_makes_of_them(tmp_path, dialect, kind):
    model = wide_model()
    back = load_model(str(written(tmp_path, dialect, model, kind)))
    for name, tensor in model.tensors.items():
        expected = tensor.f32()
        if expected.ndim == 2:
            expected = gguf.quants.dequantize(gguf.quants.quantize(expected, Q[kind]), Q[kind])
        as_it_lies = kind in ("Q8_0", "Q5_0", "Q4_0") and is_streamed(name)
        assert back.tensors[name].format.name == (kind.lower() if as_it_lies else "f32")
        assert back.tensors[name].shape == expected.shape
        assert same_bits(back.f32(name), expected)


def test_foreign_blocks_are_mapped_untouched_and_their_own_format_changes_nothing(tmp_path):
    model = wide_model()
    rows, width = model.tensors["lm_head.1.weight"].shape
    blocks = np.random.default_rng(2).integers(-128, 128, (rows, width // 32, 34), np.int8)
    blocks[..., :2] = np.frombuffer(np.float16(0.01).tobytes(), np.int8)
    assert (blocks == -128).any()  # which no quantiser gives
    file, _ = in_dialect("qwentts.cpp", model, "Q8_0")
    file.tensors["code_pred.lm_head.1.weight"] = (blocks.view(np.uint8).reshape(rows, -1), "Q8_0")
    back = load_model(str(file.write(tmp_path / "m.gguf")))
    assert back.tensors["lm_head.1.weight"].data.tobytes() == blocks.tobytes()
    assert not back.tensors["lm_head.1.weight"].data.flags.owndata
    assert back.repacked("q8_0") == (back, 0)
    assert back.repacked("f32") == (back, 0)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K", "Q3_K", "Q2_K", "IQ4_XS"])
def test_k_quants_are_what_the_gguf_package_makes_of_them(tmp_path, kind):
    model = wide_model()
    file, _ = in_dialect("HaujetZhao", model)
    raw = random_blocks(kind, (64, 256))
    file.tensors["output.weight"] = (raw, kind)
    file.tensors["blk.0.ffn_down.weight"] = (down := random_blocks(kind, (256, 512)), kind)
    back = load_model(str(file.write(tmp_path / "m.gguf")))
    heads = gguf.quants.dequantize(raw, Q[kind])
    assert np.isfinite(heads).all()
    assert same_bits(back.f32("lm_head.0.weight"), heads[:32])
    assert same_bits(back.f32("lm_head.1.weight"), heads[32:])
    assert same_bits(back.f32("model.layers.0.mlp.down_proj.weight"), gguf.quants.dequantize(down, Q[kind]))


def test_a_quantised_file_predicts_as_its_own_values(tmp_path):
    path = written(tmp_path, "predict-woo", small_model("projected"), "Q8_0")
    model = load_model(str(path))
    arrays = inputs(model, 2)
    trace = Trace()
    codes = cp_load(path, "kv_f32", 1).predict(*arrays, trace=trace)
    expected = oracle_logits(model, *arrays)
    np.testing.assert_array_equal(codes, expected[0])
    assert same_bits(trace.logits, expected[1])


# -- the head ---------------------------------------------------------------------------------------------------------


def test_the_head_says_what_the_gguf_package_says(tmp_path):
    file, _ = in_dialect("qwentts.cpp", small_model("tiny"))
    file.keys |= {"general.alignment": 64, "x.text": ["a", "bb", ""], "x.numbers": [1, 2, 3], "x.reals": [0.5, 2.0]}
    path = file.write(tmp_path / "m.gguf")
    header, reader = read_header(path), gguf.GGUFReader(path)
    assert [(t.name, t.offset, t.nbytes, list(t.shape)) for t in header.tensors.values()] == [
        (t.name, t.data_offset, t.n_bytes, list(map(int, reversed(t.shape)))) for t in reader.tensors
    ]
    for key, value in header.keys.items():
        told = reader.get_field(key).contents()
        assert value == told if not isinstance(told, list) else value.count == len(told)
