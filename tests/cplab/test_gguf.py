"""GGUF files: what is written is read back, and a file that is not a whole code predictor is refused in one line."""

from __future__ import annotations

import sys

import gguf as package
import numpy as np
import pytest
from small_models import projected_model, same_bits, small_model

from cplab import cp_load
from cplab.errors import CplabError, UnknownModelError, UnreadableModelError
from cplab.formats import FORMATS
from cplab.model import Tensor
from cplab.sources import gguf, load_model

Q = package.GGMLQuantizationType
PREFIX = "qwen3-tts."

#: The names of predict-woo and qwentts.cpp, written out.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def dialect(spec):
    """Checkpoint name -> name in the file."""
    names = {
        f"model.layers.{n}.{ours}.weight": f"code_pred.blk.{n}.{theirs}.weight"
        for n in range(spec.layers)
        for ours, theirs in LAYER.items()
    }
    names["model.norm.weight"] = "code_pred.output_norm.weight"
    for g in range(spec.groups - 1):
        names[f"model.codec_embedding.{g}.weight"] = f"code_pred.codec_embd.{g}.weight"
        names[f"lm_head.{g}.weight"] = f"code_pred.lm_head.{g}.weight"
    if spec.projected:
        names["small_to_mtp_projection.weight"] = "code_pred.mtp_proj.weight"
        names["small_to_mtp_projection.bias"] = "code_pred.mtp_proj.bias"
    return names


def keys(spec):
    """Metadata of the first dialect: key -> value, as the gguf package writes it."""
    at = PREFIX + "code_pred."
    return {
        at + "embedding_length": ("uint32", spec.hidden),
        at + "feed_forward_length": ("uint32", spec.intermediate),
        at + "block_count": ("uint32", spec.layers),
        at + "attention.head_count": ("uint32", spec.heads),
        at + "attention.head_count_kv": ("uint32", spec.kv_heads),
        at + "attention.key_length": ("uint32", spec.head_dim),
        at + "vocab_size": ("uint32", spec.vocab),
        at + "rope.freq_base": ("float32", spec.rope_theta),
        at + "attention.layer_norm_rms_epsilon": ("float32", spec.rms_eps),
        PREFIX + "num_code_groups": ("uint32", spec.groups),
        PREFIX + "talker.embedding_length": ("uint32", spec.talker_hidden),
    }


class Foreign:
    """A file written by somebody else: the gguf package alone, with any part left out or changed."""

    def __init__(self, model, kind="bf16"):
        self.architecture = "qwen3-tts"
        self.keys = keys(model.spec)
        self.endianess = package.GGUFEndian.LITTLE
        names = dialect(model.spec)
        self.tensors = {}
        for name, tensor in model.tensors.items():
            chosen = FORMATS["f32" if len(tensor.shape) == 1 else kind]
            self.tensors[names[name]] = (tensor.packed(chosen), tensor.shape, chosen.name)

    def write(self, path):
        writer = package.GGUFWriter(path, self.architecture, endianess=self.endianess)
        for key, (how, value) in self.keys.items():
            getattr(writer, f"add_{how}")(key, value)
        for name, (data, shape, kind) in self.tensors.items():
            if kind in FORMATS:
                writer.add_tensor(name, data, raw_shape=shape, raw_dtype=Q[kind.upper()])
            else:
                writer.add_tensor(name, data, raw_dtype=Q[kind])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


@pytest.fixture
def foreign(tiny):
    return Foreign(tiny)


def refused(path, *words, error=UnreadableModelError):
    """The file is refused by `load_model` and by `cp_load`, in one line that names it and holds the words."""
    for load in (load_model, lambda p: cp_load(p, "numpy_f32", 1)):
        with pytest.raises(CplabError) as caught:
            load(str(path))
        assert type(caught.value) is error
        said = str(caught.value)
        assert "\n" not in said
        assert str(path) in said
        for word in words:
            assert word in said


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_what_is_written_is_read_back(tmp_path, name):
    model = small_model(name)
    path = tmp_path / "model.gguf"
    written = []
    gguf.write(path, model.spec, iter(model.tensors.values()), name="a name", progress=written.append)
    back = gguf.read(path)
    assert back.spec == model.spec
    assert back.synthetic is False
    assert back.name == str(path)
    for key, tensor in model.tensors.items():
        stored = back.tensors[key]
        assert stored.format.name == ("f32" if len(tensor.shape) == 1 else "bf16")
        assert same_bits(stored.f32(), tensor.f32())
    assert sum(written) == sum(t.data.nbytes for t in back.tensors.values())
    assert back.digest() == model.digest()


def test_the_synthetic_mark_is_kept(tmp_path, tiny):
    gguf.write(tmp_path / "m.gguf", tiny.spec, tiny.tensors.values(), name="x", synthetic=True)
    assert gguf.read(tmp_path / "m.gguf").synthetic is True


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_names_and_keys_are_those_of_the_first_dialect(tmp_path, name):
    model = small_model(name)
    gguf.write(tmp_path / "m.gguf", model.spec, model.tensors.values(), name="x")
    reader = package.GGUFReader(tmp_path / "m.gguf")
    assert {t.name for t in reader.tensors} == set(dialect(model.spec).values())
    assert [gguf.gguf_name(n) for n in dialect(model.spec)] == list(dialect(model.spec).values())
    assert reader.get_field("general.architecture").contents() == "qwen3-tts"
    for key, (_, value) in keys(model.spec).items():
        assert reader.get_field(key).contents() == pytest.approx(value)


@pytest.mark.parametrize("kind", ["f32", "bf16", "f16"])
@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_a_file_of_the_dialect_is_read_whoever_wrote_it(tmp_path, name, kind):
    model = small_model(name)
    back = load_model(str(Foreign(model, kind).write(tmp_path / "m.gguf")))
    assert back.spec == model.spec
    assert back.digest() == model.digest()
    assert back.tensors["lm_head.0.weight"].format.name == kind


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_a_file_predicts_as_the_model_that_it_was_made_of(tmp_path, name):
    from small_models import inputs, oracle_logits

    model = small_model(name)
    path = Foreign(model).write(tmp_path / "m.gguf")
    arrays = inputs(model, 2)
    np.testing.assert_array_equal(cp_load(path, "kv_f16", 1).predict(*arrays), oracle_logits(model, *arrays)[0])


def test_floats_of_the_metadata_are_the_decimals_that_were_meant(tmp_path, foreign):
    back = load_model(str(foreign.write(tmp_path / "m.gguf")))
    assert (back.spec.rms_eps, back.spec.rope_theta) == (1e-6, 1e6)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_unknown_and_the_names_are_told(tmp_path):
    refused(tmp_path / "none.gguf", "synthetic:0.6b", "synthetic:tiny", error=UnknownModelError)


def test_an_empty_file(tmp_path):
    (tmp_path / "m.gguf").touch()
    refused(tmp_path / "m.gguf", "not a GGUF file")


def test_another_kind_of_file(tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"PK\3\4" * 100)
    refused(tmp_path / "m.gguf", "not a GGUF file")


def test_a_git_lfs_pointer(tmp_path):
    (tmp_path / "m.gguf").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 283172288\n")
    refused(tmp_path / "m.gguf", "git-lfs pointer")


def test_a_directory_in_place_of_a_file(tmp_path):
    refused(tmp_path, "directory")


def test_a_foreign_architecture(tmp_path, foreign):
    foreign.architecture = "llama"
    refused(foreign.write(tmp_path / "m.gguf"), "llama", "qwen3-tts")


@pytest.mark.parametrize("key", list(keys(projected_model().spec)))
def test_a_missing_key(tmp_path, foreign, key):
    del foreign.keys[key]
    refused(foreign.write(tmp_path / "m.gguf"), key)


@pytest.mark.parametrize("name", ["model.norm.weight", "lm_head.1.weight", "model.layers.1.self_attn.k_norm.weight"])
def test_a_missing_tensor(tmp_path, foreign, name):
    del foreign.tensors[gguf.gguf_name(name)]
    refused(foreign.write(tmp_path / "m.gguf"), "missing " + gguf.gguf_name(name))


def test_a_projection_without_its_bias(tmp_path):
    foreign = Foreign(projected_model())
    del foreign.tensors["code_pred.mtp_proj.bias"]
    refused(foreign.write(tmp_path / "m.gguf"), "missing code_pred.mtp_proj.bias")


def test_a_projection_that_the_widths_need_and_the_file_lacks(tmp_path):
    foreign = Foreign(projected_model())
    del foreign.tensors["code_pred.mtp_proj.weight"]
    path = foreign.write(tmp_path / "m.gguf")
    with pytest.raises(UnreadableModelError, match="small_to_mtp_projection"):
        load_model(str(path))


@pytest.mark.parametrize("name", ["code_pred.blk.2.attn_q.weight", "talker.output.weight", "code_pred.mtp_proj.bias"])
def test_a_tensor_left_over(tmp_path, foreign, name):
    foreign.tensors[name] = (np.zeros((16, 16), np.float32), (16, 16), "f32")
    refused(foreign.write(tmp_path / "m.gguf"), "left over " + name)


def test_missing_and_left_over_are_told_together(tmp_path, foreign):
    foreign.tensors["code_pred.lm_head.0"] = foreign.tensors.pop("code_pred.lm_head.0.weight")
    refused(foreign.write(tmp_path / "m.gguf"), "missing code_pred.lm_head.0.weight; left over code_pred.lm_head.0")


@pytest.mark.parametrize("transposed", [True, False])
def test_a_wrong_shape(tmp_path, foreign, transposed):
    name = "code_pred.blk.0.ffn_down.weight"
    data, shape, kind = foreign.tensors[name]
    if transposed:
        foreign.tensors[name] = (np.ascontiguousarray(data.T), shape[::-1], kind)
        refused(foreign.write(tmp_path / "m.gguf"), name, "[192, 64]", "[64, 192]")
    else:
        foreign.tensors[name] = (data[:-1], (shape[0] - 1, shape[1]), kind)
        refused(foreign.write(tmp_path / "m.gguf"), name, "[63, 192]", "[64, 192]")


def test_metadata_that_says_another_shape(tmp_path, foreign):
    foreign.keys[PREFIX + "code_pred.feed_forward_length"] = ("uint32", 176)
    refused(foreign.write(tmp_path / "m.gguf"), "ffn_gate", "[192, 64]", "[176, 64]")


@pytest.mark.parametrize(("kind", "dtype"), [("I32", np.int32), ("F64", np.float64)])
def test_a_type_that_the_lab_cannot_read(tmp_path, foreign, kind, dtype):
    name = "code_pred.lm_head.0.weight"
    data = FORMATS["bf16"].unpack(foreign.tensors[name][0]).astype(dtype)
    foreign.tensors[name] = (data, data.shape, kind)
    refused(foreign.write(tmp_path / "m.gguf"), name, kind, "BF16")


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_numbers_are_refused_by_cp_load(tmp_path, foreign, bad):
    name = "code_pred.blk.1.attn_v.weight"
    data, shape, kind = foreign.tensors[name]
    data = data.copy()
    data[5, 9] = FORMATS[kind].pack(np.array([bad], np.float32))[0]
    foreign.tensors[name] = (data, shape, kind)
    path = foreign.write(tmp_path / "m.gguf")
    for variant in ("kv_bf16", "numpy_f32"):
        with pytest.raises(UnreadableModelError, match=r"model\.layers\.1\.self_attn\.v_proj\.weight holds NaN"):
            cp_load(path, variant, 1)


def test_every_cut_is_refused(tmp_path, foreign):
    whole = foreign.write(tmp_path / "whole.gguf").read_bytes()
    reader = package.GGUFReader(tmp_path / "whole.gguf")
    start = reader.data_offset
    end = max(int(t.data_offset + t.n_bytes) for t in reader.tensors)
    cuts = {*range(0, 64), *range(64, start, 23), start - 1, start, start + 1, end - 1, end // 2}
    cuts |= {int(t.data_offset) + d for t in reader.tensors for d in (0, 1, int(t.n_bytes) - 1)}
    assert len(cuts) > 200
    path = tmp_path / "cut.gguf"
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(UnreadableModelError) as error:
            gguf.read(path)
        assert str(path) in str(error.value), cut
        assert "\n" not in str(error.value), cut
    path.write_bytes(whole[:end])
    gguf.read(path)


@pytest.mark.parametrize(
    ("key", "how", "value"),
    [
        ("code_pred.embedding_length", "string", "sixty-four"),
        ("code_pred.embedding_length", "array", [64, 64]),
        ("code_pred.rope.freq_base", "string", "1e6"),
    ],
)
def test_a_key_of_another_type(tmp_path, foreign, key, how, value):
    foreign.keys[PREFIX + key] = (how, value)
    refused(foreign.write(tmp_path / "m.gguf"), key)


def test_metadata_that_makes_no_sense(tmp_path, foreign):
    foreign.keys[PREFIX + "code_pred.attention.head_count_kv"] = ("uint32", 3)
    refused(foreign.write(tmp_path / "m.gguf"), "heads")


def test_text_that_is_not_utf8(tmp_path, foreign):
    path = foreign.write(tmp_path / "m.gguf")
    path.write_bytes(path.read_bytes().replace(b"qwen3-tts", b"qwen3\xfftts", 1))
    refused(path, "damaged")


def test_a_name_with_a_line_break_is_told_in_one_line(tmp_path, foreign):
    foreign.tensors["a\nb"] = (np.zeros((16, 16), np.float32), (16, 16), "f32")
    refused(foreign.write(tmp_path / "m.gguf"), "left over")


@pytest.mark.skipif(sys.platform != "linux", reason="the memory limit is Linux's")
@pytest.mark.parametrize("key", ["code_pred.block_count", "num_code_groups"])
def test_a_damaged_count_does_not_take_all_memory(tmp_path, foreign, fresh_process, key):
    foreign.keys[PREFIX + key] = ("uint32", 2**31)
    path = foreign.write(tmp_path / "m.gguf")
    found = fresh_process(
        f"""
import json, resource
from pathlib import Path
from cplab.sources import gguf
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + (256 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    gguf.read(Path({str(path)!r}))
except Exception as error:
    print(json.dumps(type(error).__name__))
""",
        timeout=60,
    )
    assert found == "UnreadableModelError"


def test_a_big_endian_file_is_read_or_refused(tmp_path, foreign, tiny):
    foreign.endianess = package.GGUFEndian.BIG
    foreign.write(tmp_path / "m.gguf")
    try:
        digest = gguf.read(tmp_path / "m.gguf").digest()
    except UnreadableModelError:
        return
    assert digest == tiny.digest()


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, 10])
@pytest.mark.parametrize("there", [False, True])
def test_a_failure_while_writing_leaves_nothing_behind(tmp_path, tiny, after, there):
    path = tmp_path / "deeper" / "m.gguf"
    if there:
        path.parent.mkdir()
        path.write_bytes(b"what was there")

    def failing():
        for k, tensor in enumerate(tiny.tensors.values()):
            if k == after:
                raise RuntimeError("the disk is on fire")
            yield tensor

    with pytest.raises(RuntimeError, match="on fire"):
        gguf.write(path, tiny.spec, failing(), name="x")
    assert [p.name for p in path.parent.iterdir()] == (["m.gguf"] if there else [])
    assert not there or path.read_bytes() == b"what was there"


def test_matrices_are_stored_as_bf16_and_vectors_as_f32(tmp_path, tiny):
    kind = FORMATS["f16"]
    tensors = [Tensor(n, kind, t.packed(kind)) for n, t in tiny.tensors.items()]
    gguf.write(tmp_path / "m.gguf", tiny.spec, tensors, name="x")
    back = gguf.read(tmp_path / "m.gguf")
    assert {t.format.name for t in back.tensors.values() if len(t.shape) == 2} == {"bf16"}
    assert back.digest() == tiny.digest()


@pytest.mark.parametrize("fault", ["swapped", "too few"])
def test_tensors_out_of_order_are_not_written_under_each_others_names(tmp_path, tiny, fault):
    tensors = list(tiny.tensors.values())
    if fault == "too few":
        tensors.pop()
    else:
        k = next(k for k, t in enumerate(tensors) if t.name.endswith("gate_proj.weight"))
        tensors[k], tensors[k + 1] = tensors[k + 1], tensors[k]
    path = tmp_path / "m.gguf"
    try:
        gguf.write(path, tiny.spec, tensors, name="x")
    except Exception:  # noqa: BLE001 - any refusal will do
        assert not path.exists()
        return
    assert gguf.read(path).digest() == tiny.digest()
