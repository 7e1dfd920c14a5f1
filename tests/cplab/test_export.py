"""Export writes what the checkpoint holds, and says for every tensor what it did."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import gguf
import numpy as np
import pytest
from checkpoint_files import PREFIX, TALKER, Folder, stored, talker_tensors
from small_models import formats_of, model_of, same_bits, small_model

from cplab.__main__ import app
from cplab.commandline import run
from cplab.errors import BadInputError, UnpackableError, UnreadableModelError
from cplab.export import planned
from cplab.formats import FORMATS
from cplab.model import Model, is_streamed
from cplab.sources import load_model, synthetic

Q = gguf.GGMLQuantizationType


@pytest.fixture(params=["tiny", "projected"])
def model(request):
    return small_model(request.param)


def written(folder, *arguments, **more):
    return [part.write() for part in planned(folder, *arguments, **more)]


# -- the code predictor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 3])
def test_matrices_are_copied_bit_for_bit(tmp_path, model, shards):
    folder = Folder(model).write(tmp_path / "m", shards)
    (done,) = written(folder, tmp_path / "cp.gguf")
    before, after = load_model(str(folder)), load_model(str(tmp_path / "cp.gguf"))
    assert after.spec == model.spec
    assert after.digest() == before.digest() == model.digest()
    for name, tensor in before.tensors.items():
        if len(tensor.shape) == 2:
            assert np.array_equal(after.tensors[name].data, tensor.data)
    assert {(t.before, t.after, t.action) for t in done if len(t.shape) == 2} == {("bf16", "bf16", "copied")}
    assert {(t.before, t.after, t.action) for t in done if len(t.shape) == 1} == {("bf16", "f32", "widened")}
    assert [t.name for t in done] == list(model.spec.shapes())


def test_any_bf16_bits_are_copied(tmp_path, tiny):
    folder, name = Folder(tiny), "model.codec_embedding.1.weight"
    bits = np.arange(256 * 64, dtype=np.uint16) * 3  # every exponent; NaNs with their payloads
    folder.tensors[PREFIX + name] = ("BF16", (256, 64), bits.tobytes())
    written(folder.write(tmp_path / "m"), tmp_path / "cp.gguf")
    assert np.array_equal(load_model(str(tmp_path / "cp.gguf")).tensors[name].data.ravel(), bits)


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_without_being_asked_nothing_is_converted(tmp_path, tiny, kind):
    (done,) = written(Folder(tiny, kind).write(tmp_path / "m"), tmp_path / "cp.gguf")
    assert {t.after for t in done if len(t.shape) == 2} == {kind}
    assert load_model(str(tmp_path / "cp.gguf")).digest() == tiny.digest()


@pytest.mark.parametrize(("kind", "action"), [("f32", "widened"), ("f16", "converted"), ("bf16", "copied")])
def test_a_format_that_is_asked_for(tmp_path, model, kind, action):
    """The seeded values are held by all three."""
    (done,) = written(Folder(model).write(tmp_path / "m"), tmp_path / "cp.gguf", matrices=kind)
    back = load_model(str(tmp_path / "cp.gguf"))
    assert {t.format.name for t in back.tensors.values() if len(t.shape) == 2} == {kind}
    assert {t.action for t in done if len(t.shape) == 2} == {action}
    assert back.digest() == model.digest()


def test_what_f16_cannot_hold_is_counted_and_measured_per_tensor(tmp_path, tiny):
    folder, name = Folder(tiny), "lm_head.1.weight"
    values = np.zeros((256, 64), np.float32)
    values[0, :4] = [2.0**-30, 1.0 + 2.0**-7, 2.0**-24 * 1.5, -(2.0**-26)]
    folder.tensors[PREFIX + name] = stored(values)
    (done,) = written(folder.write(tmp_path / "m"), tmp_path / "cp.gguf", matrices="f16")
    told = {t.name: t for t in done}
    assert {n for n, t in told.items() if t.action == "rounded"} == {name}
    assert (told[name].changed, told[name].vanished, told[name].furthest) == (3, 2, 2.0**-25)
    assert "3 of 16,384 values changed, 2 to zero, the furthest by 2.98e-08" in str(told[name])
    after = load_model(str(tmp_path / "cp.gguf")).f32(name)
    assert same_bits(after, values.astype(np.float16).astype(np.float32))


def test_what_is_beyond_f16_is_refused_and_nothing_is_left(tmp_path, tiny):
    folder = Folder(tiny)
    folder.tensors[PREFIX + "lm_head.1.weight"] = stored(np.full((256, 64), 70000, np.float32))
    path = tmp_path / "out" / "cp.gguf"
    with pytest.raises(BadInputError, match=r"lm_head\.1\.weight: 16384 values are beyond f16"):
        written(folder.write(tmp_path / "m"), path, matrices="f16")
    assert list(path.parent.iterdir()) == []


def test_rounding_f32_to_bf16_is_told(tmp_path, tiny):
    folder = Folder(tiny, "f32")
    values = np.full((256, 64), 1 + 2.0**-12, np.float32)
    folder.tensors[PREFIX + "lm_head.0.weight"] = stored(values, "f32")
    (done,) = written(folder.write(tmp_path / "m"), tmp_path / "cp.gguf", matrices="bf16")
    told = next(t for t in done if t.name == "lm_head.0.weight")
    assert (told.action, told.changed, told.furthest) == ("rounded", 256 * 64, 2.0**-12)


@pytest.mark.parametrize("kind", ["q8_0", "q6_k", "q5_0", "q4_0"])
def test_quantised_matrices_come_back_block_for_block(tmp_path, model, kind):
    model = model if kind in formats_of(model) else small_model("wide")
    (done,) = written(Folder(model).write(tmp_path / "m"), tmp_path / "cp.gguf", matrices=kind)
    rounded, changed = model.repacked(kind)
    back = load_model(str(tmp_path / "cp.gguf"))
    assert {n for n, t in back.tensors.items() if t.format.name == kind} == set(filter(is_streamed, back.tensors))
    assert back.digest() == rounded.digest() != model.digest()
    assert back.repacked(kind) == (back, 0)
    assert sum(t.changed for t in done) == changed > 0
    for told in done:
        values, tensor = model.f32(told.name), back.tensors[told.name]
        assert tensor.shape == told.shape == values.shape
        assert told.furthest == np.abs(values.astype(np.float64) - tensor.f32()).max()
        if not is_streamed(told.name):
            assert same_bits(tensor.f32(), values)
            assert (told.after, told.changed) == ("bf16" if values.ndim == 2 else "f32", 0)


@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q4_0"])
def test_other_readers_find_the_blocks_that_the_gguf_package_would_have_written(tmp_path, tiny, kind):
    written(Folder(tiny).write(tmp_path / "m"), tmp_path / "cp.gguf", matrices=kind)
    for tensor in gguf.GGUFReader(tmp_path / "cp.gguf").tensors:
        if tensor.name == "code_pred.blk.1.ffn_down.weight":
            values = tiny.f32("model.layers.1.mlp.down_proj.weight")
            assert tensor.tensor_type == Q[kind.upper()]
            assert tensor.data.tobytes() == gguf.quants.quantize(values, Q[kind.upper()]).tobytes()
            break
    else:
        pytest.fail("the tensor is not there")


def test_a_weight_beyond_the_scales_is_refused_by_name_and_nothing_is_left(tmp_path, tiny):
    folder = Folder(tiny)
    values = np.zeros((256, 64), np.float32)
    values[3, 40] = -9e6
    folder.tensors[PREFIX + "lm_head.1.weight"] = stored(values)
    path = tmp_path / "out" / "cp.gguf"
    with pytest.raises(UnpackableError, match=r"lm_head\.1\.weight: the weight -8978432 at \[3, 40\] .* q8_0"):
        written(folder.write(tmp_path / "m"), path, matrices="q8_0")
    assert list(path.parent.iterdir()) == []


def test_rows_that_are_not_made_of_blocks_are_refused_before_anything_is_written(tmp_path):
    spec = replace(small_model("tiny").spec, intermediate=48)
    model = Model("odd", spec, {t.name: t for t in synthetic.tensors("synthetic:odd", spec)})
    folder = Folder(model).write(tmp_path / "m")
    with pytest.raises(UnpackableError, match=r"layers\.0\.mlp\.down_proj\.weight: rows of 48 weights .* blocks of 32"):
        planned(folder, tmp_path / "cp.gguf", matrices="q8_0")
    written(folder, tmp_path / "cp.gguf")


# -- the talker -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "file_type"), [(kind, f"MOSTLY_{kind.upper()}") for kind in ("q8_0", "q5_0", "q4_0")])
def test_a_quantised_talker_keeps_its_table(tmp_path, kind, file_type):
    written(Folder(model_of(kind)).write(tmp_path / "m"), None, talker=tmp_path / "talker.gguf", matrices=kind)
    reader = gguf.GGUFReader(tmp_path / "talker.gguf")
    assert reader.get_field("general.file_type").contents() == gguf.LlamaFileType[file_type]
    types = {t.name: t.tensor_type.name.lower() for t in reader.tensors if len(t.shape) == 2}
    assert types.pop("token_embd.weight") == "bf16"
    assert "output.weight" in types
    assert set(types.values()) == {kind}


def test_the_talker_is_a_qwen3_of_llama_cpp(tmp_path, model):
    """Names and shapes as llama.cpp's loader asks for them: the gguf package's tables, and shapes from the keys."""
    folder = Folder(model).write(tmp_path / "m", shards=2)
    written(folder, None, talker=tmp_path / "talker.gguf")
    reader = gguf.GGUFReader(tmp_path / "talker.gguf")

    def key(name):
        return reader.get_field(name).contents()

    assert key("general.architecture") == "qwen3"
    assert key("tokenizer.ggml.model") == "no_vocab"
    assert key("general.file_type") == gguf.LlamaFileType.MOSTLY_BF16
    h, f, d = key("qwen3.embedding_length"), key("qwen3.feed_forward_length"), key("qwen3.attention.key_length")
    heads, kv_heads = key("qwen3.attention.head_count"), key("qwen3.attention.head_count_kv")
    vocab, layers = key("qwen3.vocab_size"), key("qwen3.block_count")
    assert (h, f, d) == (model.spec.talker_hidden, TALKER["intermediate"], TALKER["head_dim"])
    assert (heads, kv_heads, vocab, layers) == tuple(TALKER[k] for k in ("heads", "kv_heads", "vocab", "layers"))
    assert key("qwen3.attention.value_length") == d != h // heads
    assert key("qwen3.context_length") == 32768
    assert key("qwen3.rope.freq_base") == 1e6
    assert key("qwen3.attention.layer_norm_rms_epsilon") == float(np.float32(1e-6))
    per_layer = {
        "attn_norm": [h],
        "attn_q": [heads * d, h],
        "attn_k": [kv_heads * d, h],
        "attn_v": [kv_heads * d, h],
        "attn_output": [h, heads * d],
        "attn_q_norm": [d],
        "attn_k_norm": [d],
        "ffn_norm": [h],
        "ffn_gate": [f, h],
        "ffn_up": [f, h],
        "ffn_down": [h, f],
    }
    wanted = {"token_embd.weight": [vocab, h], "output_norm.weight": [h], "output.weight": [vocab, h]}
    wanted |= {f"blk.{n}.{part}.weight": shape for n in range(layers) for part, shape in per_layer.items()}
    assert {t.name: [int(n) for n in reversed(t.shape)] for t in reader.tensors} == wanted
    known = {gguf.TENSOR_NAMES[kind] for kind in gguf.MODEL_TENSORS[gguf.MODEL_ARCH.QWEN3]}
    assert {f"{n}.weight" for n in known if "rope_freqs" not in n} == {
        name.replace("blk.0.", "blk.{bid}.") for name in wanted if not name.startswith("blk.1.")
    }
    # llama.cpp multiplies by norms in float32 only.
    assert {t.tensor_type for t in reader.tensors if len(t.shape) == 1} == {Q.F32}
    assert {t.tensor_type for t in reader.tensors if len(t.shape) == 2} == {Q.BF16}


def test_the_talkers_values_are_the_checkpoints(tmp_path, tiny):
    written(Folder(tiny).write(tmp_path / "m"), None, talker=tmp_path / "talker.gguf", matrices="f32")
    found = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "talker.gguf").tensors}
    bf16 = FORMATS["bf16"]
    ours = {n: bf16.unpack(bf16.pack(v)) for n, v in talker_tensors(tiny.spec).items()}
    for name, theirs in {
        "token_embd.weight": "talker.model.codec_embedding.weight",
        "output.weight": "talker.codec_head.weight",
        "output_norm.weight": "talker.model.norm.weight",
        "blk.1.attn_output.weight": "talker.model.layers.1.self_attn.o_proj.weight",
        "blk.1.ffn_norm.weight": "talker.model.layers.1.post_attention_layernorm.weight",
        "blk.0.ffn_down.weight": "talker.model.layers.0.mlp.down_proj.weight",
    }.items():
        assert np.array_equal(found[name], ours[theirs])


@pytest.mark.parametrize(
    "key", ["head_dim", "num_key_value_heads", "rope_theta", "vocab_size", "max_position_embeddings", "hidden_act"]
)
def test_a_key_that_the_talker_lacks_is_named(tmp_path, tiny, key):
    folder = Folder(tiny)
    del folder.config["talker_config"][key]
    with pytest.raises(UnreadableModelError, match=rf"talker_config\.{key} is missing"):
        planned(folder.write(tmp_path / "m"), None, talker=tmp_path / "t.gguf")


def test_every_tensor_of_the_talker_is_used_once(tmp_path, tiny):
    folder = Folder(tiny)
    del folder.tensors["talker.codec_head.weight"]
    folder.tensors["talker.model.layers.0.self_attn.q_proj.bias"] = stored(np.zeros(192, np.float32))
    with pytest.raises(UnreadableModelError) as caught:
        planned(folder.write(tmp_path / "m"), None, talker=tmp_path / "t.gguf")
    assert "missing: talker.codec_head.weight; left over: talker.model.layers.0.self_attn.q_proj.bias" in str(
        caught.value
    )


# -- Kazeia's parts ---------------------------------------------------------------------------------------------------


def test_kazeias_three_parts_are_the_model(tmp_path, model):
    written(Folder(model).write(tmp_path / "m"), None, kazeia=tmp_path / "k")
    names = ["cp_codec_embd_f16.gguf", "cp_f16.gguf", "cp_heads_f16.gguf"]
    assert sorted(p.name for p in (tmp_path / "k").iterdir()) == names
    back = load_model(str(tmp_path / "k" / "cp_f16.gguf"))
    assert back.spec == model.spec
    assert back.digest() == model.digest()
    assert {t.format.name for t in back.tensors.values() if len(t.shape) == 2} == {"f16"}


def test_kazeias_layers_are_a_qwen3_without_heads(tmp_path, tiny):
    written(Folder(tiny).write(tmp_path / "m"), None, kazeia=tmp_path / "k")
    reader = gguf.GGUFReader(tmp_path / "k" / "cp_f16.gguf")
    names = {t.name for t in reader.tensors}
    assert reader.get_field("general.architecture").contents() == "qwen3"
    assert "output.weight" not in names
    assert not any(n.startswith("code_pred") for n in names)
    table = next(t for t in reader.tensors if t.name == "token_embd.weight")
    assert not table.data.any()


# -- the command line -------------------------------------------------------------------------------------------------


def test_everything_at_once(tmp_path, model, capsys):
    folder = Folder(model).write(tmp_path / "m", shards=2)
    cp, talker, kazeia = tmp_path / "cp.gguf", tmp_path / "deeper" / "talker.gguf", tmp_path / "k"
    assert run(app, ["export", str(folder), "-o", str(cp), "--talker", str(talker), "--kazeia", str(kazeia)]) == 0
    out = capsys.readouterr().out
    assert "lm_head.0.weight" in out
    assert "bf16 -> bf16: copied" in out
    assert "talker.codec_head.weight" in out
    assert f"{cp}: {len(model.spec.shapes())} tensors" in out
    assert load_model(str(cp)).digest() == load_model(str(kazeia / "cp_f16.gguf")).digest() == model.digest()


@pytest.mark.parametrize("arguments", [[], ["-o", "{0}/cp.gguf", "--format", "q2_k"]])
def test_wrong_use_is_one_line(tmp_path, tiny, capsys, arguments):
    folder = Folder(tiny).write(tmp_path / "m")
    assert run(app, ["export", str(folder), *(a.format(tmp_path) for a in arguments)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "cp.gguf").exists()


def test_the_checkpoints_own_files_are_not_written_over(tmp_path, tiny):
    folder = Folder(tiny).write(tmp_path / "m")
    before = (folder / "model.safetensors").read_bytes()
    for output, more in (
        (folder / "model.safetensors", {}),
        (tmp_path, {}),
        (tmp_path / "cp.gguf", {"talker": tmp_path / "m" / ".." / "cp.gguf"}),
    ):
        with pytest.raises(BadInputError, match="another file's name"):
            planned(folder, output, **more)
    assert (folder / "model.safetensors").read_bytes() == before


def test_a_fault_in_one_part_keeps_every_part_from_being_written(tmp_path, tiny):
    folder = Folder(tiny)
    del folder.tensors["talker.codec_head.weight"]
    path = folder.write(tmp_path / "m")
    assert run(app, ["export", str(path), "-o", str(tmp_path / "cp.gguf"), "--talker", str(tmp_path / "t.gguf")]) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_what_was_there_stays_when_export_fails(tmp_path, tiny):
    folder = Folder(tiny)
    folder.tensors[PREFIX + "lm_head.1.weight"] = stored(np.full((256, 64), 1e20, np.float32))
    (tmp_path / "cp.gguf").write_bytes(b"what was there")
    arguments = ["export", str(folder.write(tmp_path / "m")), "-o", str(tmp_path / "cp.gguf"), "--format", "f16"]
    assert run(app, arguments) == 1
    assert (tmp_path / "cp.gguf").read_bytes() == b"what was there"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cp.gguf", "m"]


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from Linux's /proc")
@pytest.mark.parametrize("kind", ["bf16", "f32", "f16"])
@pytest.mark.slow
def test_peak_memory_is_below_one_and_a_half_times_the_output(tmp_path, kind):
    folder = Folder(load_model("synthetic:0.6b")).write(tmp_path / "m")
    source = (
        "import re, sys; from pathlib import Path; from cplab.__main__ import app; from cplab.commandline import run\n"
        "code = run(app, sys.argv[1:])\n"
        "print(code, re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    output = tmp_path / "cp.gguf"
    arguments = ["export", str(folder), "-o", str(output), "--format", kind]
    done = subprocess.run(
        [sys.executable, "-c", source, *arguments], env=os.environ, capture_output=True, text=True, check=True
    )
    code, peak = map(int, done.stdout.splitlines()[-1].split())
    assert code == 0
    assert peak * 1024 < 1.5 * output.stat().st_size
