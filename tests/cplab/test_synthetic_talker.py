"""Seeded talkers as files: the published shape, the same bits everywhere, made once, never trusted when damaged."""

from __future__ import annotations

import json
import sys
from importlib.resources import files

import gguf
import numpy as np
import pytest

from cplab.commandline import run
from cplab.errors import BadInputError, UnknownModelError, UnreadableModelError
from cplab.formats import FORMATS
from cplab.sources import synthetic, synthetic_talker
from cplab.sources.gguf_header import read_header
from cplab.sources.synthetic_talker import DIMENSIONS, file_digest, file_of
from cplab.sources.talker import qwen3_name, talker_digest, talker_shapes
from cplab.sources.talker_file import read_talker_file
from cplab.spec import PRESETS
from cplab.talker import talker_file

DIGESTS = json.loads(files("cplab.sources").joinpath("synthetic_talker_digests.json").read_text())
NAME = "synthetic-talker:tiny"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    return tmp_path


def test_the_large_one_has_the_published_shape():
    dims = DIMENSIONS["0.6b"]
    assert (dims.layers, dims.hidden, dims.intermediate, dims.vocab) == (28, 1024, 3072, 3072)
    assert (dims.heads, dims.kv_heads, dims.head_dim) == (16, 8, 128)
    assert (dims.rope_theta, dims.rms_eps) == (1e6, 1e-6)


@pytest.mark.parametrize("short", list(DIMENSIONS))
def test_each_fits_its_code_predictor(short):
    dims, spec = DIMENSIONS[short], PRESETS[short]
    assert (dims.hidden, dims.vocab) == (spec.talker_hidden, spec.vocab + 1024)


def test_values_have_the_committed_digest():
    assert set(DIGESTS) == set(synthetic_talker.names())
    made = list(synthetic_talker.tensors("tiny"))
    assert [t.name for t in made] == list(talker_shapes(DIMENSIONS["tiny"]))
    assert talker_digest(made) != talker_digest(made[1:])
    import hashlib

    total = hashlib.sha256()
    for tensor in made:
        total.update(tensor.name.encode() + b"\0" + hashlib.sha256(tensor.f32().tobytes()).digest())
    assert total.hexdigest()[:16] == DIGESTS[NAME]["values"]


def test_a_value_depends_on_its_name_and_place_only():
    """A tensor of the large one, without making the others."""
    name = "talker.model.layers.27.self_attn.k_proj.weight"
    tensor = synthetic_talker._tensor("0.6b", name, (1024, 1024))
    assert np.array_equal(tensor.f32()[3, 5:9], synthetic.gaussian(f"talker/0.6b/{name}", 4, -21, start=3 * 1024 + 5))


@pytest.mark.parametrize("kind", ["q8_0", "f32"])
def test_the_file_has_the_committed_digest(kind):
    path = file_of(f"{NAME}:{kind}")
    assert file_digest(path) == DIGESTS[NAME]["files"][kind]


def test_the_default_is_q8_0_and_the_table_stays_bf16():
    assert file_of(NAME) == file_of(f"{NAME}:q8_0")
    header = read_header(file_of(NAME))
    assert header.keys["general.architecture"] == "qwen3"
    kinds = {name: stored.kind.name for name, stored in header.tensors.items()}
    assert kinds["blk.1.ffn_down.weight"] == kinds["output.weight"] == "Q8_0"
    assert kinds["token_embd.weight"] == "BF16"
    assert kinds["output_norm.weight"] == "F32"


@pytest.mark.parametrize("kind", ["q8_0", "bf16", "f16", "f32", "q4_0"])
def test_every_tensor_is_in_the_file_in_the_type_asked_for(kind):
    stored = {t.name: t for t in gguf.GGUFReader(file_of(f"{NAME}:{kind}")).tensors}
    made = list(synthetic_talker.tensors("tiny"))
    assert set(stored) == {qwen3_name(t.name) for t in made}
    for tensor in made:
        there = stored[qwen3_name(tensor.name)]
        values = gguf.quants.dequantize(there.data, there.tensor_type)
        form = FORMATS[there.tensor_type.name.lower()]
        assert np.array_equal(values, form.unpack(form.pack(tensor.f32()))), tensor.name


def test_it_is_made_once(monkeypatch):
    path = file_of(NAME)
    made = path.stat().st_mtime_ns
    monkeypatch.setattr(synthetic_talker, "make", lambda *_: pytest.fail("made again"))
    assert file_of(NAME).stat().st_mtime_ns == made


def test_a_damaged_file_is_made_again():
    path = file_of(NAME)
    data = bytearray(path.read_bytes())
    data[-100] ^= 1
    path.write_bytes(data)
    assert file_digest(file_of(NAME)) == DIGESTS[NAME]["files"]["q8_0"]


def test_other_bits_leave_no_file(monkeypatch, empty_cache):
    monkeypatch.setattr(synthetic_talker, "_digests", lambda _: {"values": "0" * 16, "files": {}})
    with pytest.raises(UnreadableModelError, match="other bits"):
        file_of(NAME)
    assert list((empty_cache / "models").iterdir()) == []


@pytest.mark.parametrize("name", ["synthetic-talker:", "synthetic-talker:1b", "synthetic-talker:tiny:q2_k"])
def test_unknown_names_are_told(name):
    with pytest.raises(UnknownModelError, match=r"synthetic-talker:0\.6b"):
        talker_file(name)


# -- a talker's file, looked at ---------------------------------------------------------------------------------------


def test_what_a_file_says():
    file = read_talker_file(file_of(NAME))
    assert (file.width, file.vocab, file.layers, file.kind) == (64, 1280, 2, "q8_0")
    table = next(t for t in synthetic_talker.tensors("tiny") if "codec_embedding" in t.name)
    assert np.array_equal(file.codec_embedding(), table.f32())


def rewritten(path, *, architecture="qwen3", keys=None, leave_out=(), shapes=None):
    """The tiny talker's file with something wrong."""
    reader = gguf.GGUFReader(file_of(f"{NAME}:f32"))
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in (DIMENSIONS["tiny"].keys() | (keys or {})).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif value is not None:
            writer.add_float32(key, value)
    for tensor in reader.tensors:
        if tensor.name not in leave_out:
            shape = (shapes or {}).get(tensor.name)
            data = tensor.data if shape is None else np.zeros(shape, np.float32)
            kind = None if shape else tensor.tensor_type
            writer.add_tensor(tensor.name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"architecture": "llama"}, "architecture 'llama', not a talker"),
        ({"keys": {"qwen3.block_count": None}}, "metadata key qwen3.block_count is missing"),
        ({"leave_out": ["token_embd.weight"]}, "token_embd.weight .CB0's table. is missing"),
        ({"leave_out": ["output.weight"]}, "output.weight .CB0's head. is missing"),
        ({"shapes": {"output.weight": (1024, 64)}}, r"output.weight is \[1024, 64\], \[1280, 64\] is wanted"),
        ({"keys": {"qwen3.embedding_length": 96}}, r"token_embd.weight is \[1280, 64\], \[1280, 96\] is wanted"),
    ],
)
def test_what_is_no_talker_is_named(tmp_path, wrong, told):
    with pytest.raises(UnreadableModelError, match=told):
        read_talker_file(rewritten(tmp_path / "t.gguf", **wrong))


def test_a_talker_that_does_not_fit_is_refused():
    file = read_talker_file(file_of(NAME))
    file.must_fit(PRESETS["tiny"])
    with pytest.raises(BadInputError, match="width 64; the code predictor wants 1024"):
        file.must_fit(PRESETS["0.6b"])


# -- the command where llama.cpp is not installed ---------------------------------------------------------------------


def test_the_missing_extra_is_named_with_the_command(monkeypatch, capsys):
    from cplab.__main__ import app
    from cplab.llama import engine

    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_cpp", None)
    engine.bindings.cache_clear()
    assert run(app, ["orchestrate", "--talker", NAME, "--cp", "synthetic:tiny", "--frames", "2"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "pip install 'cplab[llama]'" in error
