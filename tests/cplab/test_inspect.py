"""`python -m cplab inspect`: what it prints, into a pipe and on a terminal, and that it reads no tensor."""

from __future__ import annotations

import io
import sys

import gguf
import numpy as np
import pytest
from dialect_files import each, in_dialect, layers, write_all
from rich.console import Console
from small_models import small_model

from cplab.__main__ import app
from cplab.commandline import run
from cplab.inspecting import show
from cplab.sources.gguf_reading import surveyed
from cplab.spec import PRESETS

DIALECTS = ["qwentts.cpp", "predict-woo", "CrispASR", "HaujetZhao", "llama.cpp mmproj", "Kazeia"]


@pytest.fixture
def inspect(capsys, monkeypatch):
    """Exit code, standard output and standard error of an inspection, as into a pipe."""

    def inspected(path):
        monkeypatch.setattr("cplab.__main__.console", Console(file=sys.stdout))
        code = run(app, ["inspect", str(path)])
        out, err = capsys.readouterr()
        return code, out, err

    return inspected


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_good_file(tmp_path, inspect, dialect):
    path = write_all(tmp_path / "cp_f16.gguf", *in_dialect(dialect, small_model("tiny")))
    code, out, err = inspect(path)
    assert (code, err) == (0, "")
    assert f"dialect: {dialect}" in out
    assert "nothing is wrong" in out
    lines = out.splitlines()
    tensors = lines[: next(k for k, line in enumerate(lines) if line.startswith("code predictor: "))]
    survey = surveyed(path)
    for stored in survey.tensors.values():
        (line,) = [line for line in tensors if f" {stored.name} " in line]
        for word in (str(list(stored.shape)), stored.kind.name, f"{stored.nbytes:,}"):
            assert word in line
    for field, value in survey.values.items():
        assert any(line.split()[:2] == [field, str(value)] and survey.origins[field] in line for line in lines)


def test_checkpoint_names_stand_beside_the_files(tmp_path, inspect):
    path = write_all(tmp_path / "m.gguf", *in_dialect("llama.cpp mmproj", small_model("projected")))
    _, out, _ = inspect(path)
    rows = {line.split()[1]: line.split()[0] for line in out.splitlines() if "a.gen.code." in line}
    assert rows["a.gen.code.blk.2.ln2.weight"] == "model.layers.2.post_attention_layernorm.weight"
    assert rows["a.gen.code.head.weight"] == "lm_head.*.weight"
    assert rows["a.gen.code.proj_in.bias"] == "small_to_mtp_projection.bias"


def test_what_is_wrong_is_listed_and_told_in_one_line_last(tmp_path, inspect):
    file, _ = in_dialect("qwentts.cpp", small_model("tiny"))
    del file.tensors["code_pred.lm_head.1.weight"]
    file.tensors["code_pred.more.weight"] = (np.zeros((2, 32), np.float32), "f32")
    path = file.write(tmp_path / "m.gguf")
    code, out, err = inspect(path)
    assert code == 1
    assert "missing code_pred.lm_head.1.weight; left over code_pred.more.weight" in out
    assert any("! left over" in line and "code_pred.more.weight" in line for line in out.splitlines())
    assert err.count("\n") == 1
    assert err.startswith(f"error: {path}: tensors missing code_pred.lm_head.1.weight")


def test_tensors_and_known_fields_are_shown_where_the_spec_is_incomplete(tmp_path, inspect):
    file, _ = in_dialect("CrispASR", small_model("tiny"))
    del file.keys["qwen3tts.talker.rope_theta"]
    code, out, err = inspect(file.write(tmp_path / "m.gguf"))
    assert code == 1
    assert "model.layers.1.mlp.down_proj.weight" in out
    assert "qwen3tts.code_pred.n_code_groups" in out
    assert "metadata key qwen3tts.code_pred.rope_theta is missing" in err


@pytest.mark.parametrize(
    "content", [b"", b"PK\3\4" * 9, b"version https://git-lfs.github.com/spec/v1\n", b"GGUF\3\0\0\0"]
)
def test_no_gguf_is_one_line(tmp_path, inspect, content):
    (tmp_path / "m.gguf").write_bytes(content)
    code, out, err = inspect(tmp_path / "m.gguf")
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_file_that_is_not_there_and_a_directory(tmp_path, inspect):
    for path in (tmp_path / "none.gguf", tmp_path):
        code, out, err = inspect(path)
        assert (code, out, err.count("\n")) == (1, "", 1)


def test_names_are_folded_on_a_narrow_terminal_and_never_cut(tmp_path):
    survey = surveyed(write_all(tmp_path / "m.gguf", *in_dialect("qwentts.cpp", small_model("tiny"))))
    screen = io.StringIO()
    show(survey, Console(file=screen, force_terminal=True, width=60, color_system=None))
    assert "…" not in screen.getvalue()
    assert max(map(len, screen.getvalue().splitlines())) <= 60


def test_names_of_a_foreign_file_are_no_markup_and_break_no_line(tmp_path, inspect):
    file, _ = in_dialect("qwentts.cpp", small_model("tiny"))
    file.tensors["code_pred.[red]x\ny\x1b"] = (np.zeros((2, 32), np.float32), "f32")
    _, out, _ = inspect(file.write(tmp_path / "m.gguf"))
    assert any(r"code_pred.[red]x\ny\x1b" in line and "! left over" in line for line in out.splitlines())


def full_size_file(path):
    """A file of more than 1 GB of the 0.6B's shape with a talker and a tokenizer, all zeros and nowhere on the disk."""
    spec = PRESETS["0.6b"]
    names = (
        layers(spec, "code_pred.blk")
        | {"model.norm.weight": "code_pred.output_norm.weight"}
        | each(spec, "model.codec_embedding", "code_pred.codec_embd")
        | each(spec, "lm_head", "code_pred.lm_head")
    )
    shapes = {theirs: spec.shapes()[ours] for ours, theirs in names.items()}
    shapes |= {"talker.text_embd.weight": (151936, 2048), "talker.codec_embd.weight": (3072, 1024)}
    shapes |= {f"talker.blk.{n}.ffn_up.weight": (3072, 1024) for n in range(28)}
    writer = gguf.GGUFWriter(path, "qwen3-tts")
    at = "qwen3-tts.code_pred."
    numbers = {
        "qwen3-tts.num_code_groups": 16,
        "qwen3-tts.talker.embedding_length": 1024,
        at + "embedding_length": 1024,
        at + "feed_forward_length": 3072,
        at + "block_count": 5,
        at + "attention.head_count": 16,
        at + "attention.head_count_kv": 8,
        at + "attention.key_length": 128,
        at + "vocab_size": 2048,
    }
    for key, value in numbers.items():
        writer.add_uint32(key, value)
    writer.add_float32(at + "rope.freq_base", 1e6)
    writer.add_float32(at + "attention.layer_norm_rms_epsilon", 1e-6)
    writer.add_array("tokenizer.ggml.tokens", [f"token {i}" for i in range(151936)])
    writer.add_array("tokenizer.ggml.merges", [f"a{i} b" for i in range(151387)])
    writer.add_array("tokenizer.ggml.token_type", [1] * 151936)
    kind = gguf.GGMLQuantizationType.BF16
    for name, shape in shapes.items():
        writer.add_tensor_info(name, shape, np.dtype(np.uint16), 2 * int(np.prod(shape)), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size + sum(2 * int(np.prod(s)) for s in shapes.values()) + 4096 * len(shapes))
    return path


def test_a_large_file_is_inspected_without_reading_its_tensors(tmp_path, fresh_process):
    path = full_size_file(tmp_path / "m.gguf")
    assert path.stat().st_size > 1_000_000_000
    found = fresh_process(
        f"""
import json, resource
from pathlib import Path
from cplab.sources.gguf_reading import surveyed
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
survey = surveyed(Path({str(path)!r}))
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([survey.problems, survey.dialect.name, grown]))
""",
        timeout=60,
    )
    problems, dialect, grown = found
    assert (problems, dialect) == ([], "qwentts.cpp")
    assert grown < (100_000 if sys.platform == "linux" else 100_000_000)  # kB on Linux, bytes on macOS
