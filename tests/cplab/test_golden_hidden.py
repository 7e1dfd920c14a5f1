"""Goldens of given inputs: what is taken, what is refused, and in how many lines; no PyTorch here."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
from checkpoint_files import TALKER, Folder, stored, talker_tensors

from cplab.__main__ import app
from cplab.commandline import run
from cplab.formats import FORMATS
from cplab.golden import load_golden
from cplab.golden_making import make_golden
from cplab.sources import load_model, synthetic

FRAMES = 6


@pytest.fixture
def states(tmp_path, tiny):
    """A file of hidden states, ``[6, 64]``, and what is in it."""
    values = synthetic.hidden_states("given", FRAMES, tiny.spec.talker_hidden)
    np.save(tmp_path / "hidden.npy", values)
    return tmp_path / "hidden.npy", values


@pytest.fixture
def checkpoint(tmp_path, tiny):
    """A checkpoint's folder with languages and speakers, and without a tokenizer."""
    folder = Folder(tiny)
    folder.config["talker_config"] |= {
        "codec_language_id": {"french": 70, "beijing_dialect": 74},
        "spk_id": {"serena": 100},
        "spk_is_dialect": {"serena": False},
    }
    return folder.write(tmp_path / "m")


def golden(output, *arguments):
    return run(app, ["golden", "-o", str(output), "--model", "synthetic:tiny", *map(str, arguments)])


def one_line(capsys, *words):
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    for word in words:
        assert str(word) in error
    return error


def test_recorded_states_go_in_as_they_are(tmp_path, states):
    path, values = states
    assert golden(tmp_path / "g.npz", "--hidden", path) == 0
    made = load_golden(tmp_path / "g.npz")
    assert np.array_equal(made.hidden, values)
    assert made.provenance["hidden"] == "hidden.npy"
    assert made.provenance["inputs"] == "given hidden states, seeded CB0"
    assert made.provenance["inputs_kept"] == list(range(FRAMES))


@pytest.mark.parametrize(("kind", "word"), [("float16", "float16 widened"), ("float64", "float64 rounded")])
def test_other_floats_are_taken_with_a_word(tmp_path, states, capsys, kind, word):
    path, values = states
    np.save(path, values.astype(kind))
    assert golden(tmp_path / "g.npz", "--hidden", path) == 0
    assert f"{path}: {word} to float32" in capsys.readouterr().out
    assert np.array_equal(load_golden(tmp_path / "g.npz").hidden, values.astype(kind).astype(np.float32))


def test_no_more_frames_than_are_given(tmp_path, states, capsys):
    path, _ = states
    assert golden(tmp_path / "g.npz", "--hidden", path, "--frames", FRAMES + 1) == 1
    one_line(capsys, path, "holds 6 hidden states", "--frames 7")
    assert not (tmp_path / "g.npz").exists()
    assert golden(tmp_path / "g.npz", "--hidden", path, "--frames", 3) == 0
    assert len(load_golden(tmp_path / "g.npz")) == 3


def test_a_frame_with_another_ones_codes_is_passed_over(tmp_path, tiny, states):
    _, values = states
    cb0 = synthetic.cb0_embeddings("given", FRAMES, tiny.spec.talker_hidden)
    values[4], cb0[4] = values[1], cb0[1]
    made = make_golden(load_model("synthetic:tiny"), FRAMES, hidden=values, cb0_embed=cb0)
    assert made.provenance["inputs_kept"] == [0, 1, 2, 3, 5]
    assert made.provenance["frames_passed_over"] == 1
    assert np.array_equal(made.cb0_embed, cb0[[0, 1, 2, 3, 5]])


def test_frames_passed_over_are_told(tmp_path, states, checkpoint, capsys):
    path, values = states
    values[4] = values[1]
    np.save(path, values)
    np.save(tmp_path / "codes.npy", np.array([5, 100, 7, 6, 100, 111]))
    arguments = ("--hidden", path, "--model", checkpoint, "--cb0", tmp_path / "codes.npy")
    assert golden(tmp_path / "g.npz", *arguments) == 0
    assert "5 frames, 5 distinct" in (told := capsys.readouterr().out)
    assert "1 passed over" in told


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v[:, :48], ["float32 [6, 48]", "[frames, 64]"]),
        (lambda v: v[0], ["float32 [64]"]),
        (lambda v: v.astype(np.int32), ["int32 [6, 64]"]),
        (lambda v: np.where(np.arange(64) == 7, np.nan, v).astype(np.float32), ["NaN or infinite value at [0, 7]"]),
        (lambda v: v.astype(np.float64) * 1e300, ["NaN or infinite"]),
        (lambda v: v[:1], ["holds 1 hidden states"]),
        (lambda v: v.astype(object), ["no .npy that can be read"]),
    ],
    ids=["width", "no frames", "integers", "NaN", "beyond float32", "one frame", "objects"],
)
def test_states_that_do_not_fit_are_one_line(tmp_path, states, capsys, change, words):
    path, values = states
    np.save(path, change(values))
    assert golden(tmp_path / "g.npz", "--hidden", path) == 1
    one_line(capsys, path, *words)


@pytest.mark.parametrize("content", [None, b"", b"no numpy file at all", b"PK\x03\x04"])
def test_files_that_are_none_are_one_line(tmp_path, capsys, content):
    path = tmp_path / "hidden.npy"
    if content is not None:
        path.write_bytes(content)
    for option in ("--hidden", "--from-talker"):
        model = ["--model", Folder(load_model("synthetic:tiny")).write(tmp_path / "m")]
        assert golden(tmp_path / "g.npz", option, path, *model) == 1
        one_line(capsys, path)


# -- CB0 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True], ids=["CB0 alone", "whole frames"])
def test_codes_are_looked_up_in_the_talkers_table(tmp_path, tiny, states, checkpoint, whole):
    path, _ = states
    cb0 = np.array([5, 100, 7, 5, 0, 111])
    frames = np.column_stack([cb0, np.full((FRAMES, 2), 300)])
    np.save(tmp_path / "codes.npy", frames if whole else cb0)
    arguments = ("--hidden", path, "--model", checkpoint, "--cb0", tmp_path / "codes.npy")
    assert golden(tmp_path / "g.npz", *arguments) == 0
    made = load_golden(tmp_path / "g.npz")
    table = talker_tensors(tiny.spec)["talker.model.codec_embedding.weight"]
    rounded = FORMATS["bf16"].unpack(FORMATS["bf16"].pack(table))
    assert np.array_equal(made.cb0_embed, rounded[cb0][made.provenance["inputs_kept"]])
    assert made.provenance["inputs"] == "given"


@pytest.mark.parametrize(
    ("codes", "word"),
    [
        (np.arange(FRAMES) + TALKER["vocab"], "the talker has 0..111"),
        (-np.arange(FRAMES), "the talker has 0..111"),
        (np.zeros((FRAMES, 16), np.int32), "[frames, 3]"),
        (np.zeros(FRAMES), "float64 [6]"),
        (np.arange(FRAMES - 1), "5"),
    ],
    ids=["too high", "negative", "other groups", "floats", "other length"],
)
def test_codes_that_do_not_fit_are_one_line(tmp_path, states, checkpoint, capsys, codes, word):
    np.save(tmp_path / "codes.npy", codes)
    arguments = ("--hidden", states[0], "--model", checkpoint, "--cb0", tmp_path / "codes.npy")
    assert golden(tmp_path / "g.npz", *arguments) == 1
    one_line(capsys, tmp_path / "codes.npy", word)


# -- what goes with what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--hidden", "a.npy", "--text", "Bonjour"], "--hidden and --text"),
        (["--text", "Bonjour", "--from-talker", "a.npz"], "--text and --from-talker"),
        (["--cb0", "a.npy"], "--cb0 goes with --hidden"),
        (["--from-talker", "a.npz", "--speaker", "serena"], "--speaker goes with --text"),
        (["--hidden", "a.npy", "--language", "french"], "--language goes with --text"),
        (["--non-streaming"], "--non-streaming goes with --text"),
        (["--hidden", "a.npy", "--dump", "b.npz"], "--dump goes with --text or --from-talker"),
        (["--text", "Bonjour", "--reference", "oracle"], "leave the option out"),
        (["--frames", "1"], "at least 2"),
        (["--text", "Bonjour"], "a checkpoint's folder; synthetic:tiny is none"),
        (["--from-talker", "a.npz"], "a checkpoint's folder; synthetic:tiny is none"),
    ],
)
def test_options_that_do_not_go_together(tmp_path, capsys, arguments, word):
    assert golden(tmp_path / "g.npz", *arguments) == 1
    one_line(capsys, word)


def test_a_gguf_file_cannot_speak(tmp_path, checkpoint, capsys):
    assert run(app, ["export", str(checkpoint), "-o", str(tmp_path / "cp.gguf")]) == 0
    assert gguf.GGUFReader(tmp_path / "cp.gguf").tensors
    capsys.readouterr()
    assert golden(tmp_path / "g.npz", "--model", tmp_path / "cp.gguf", "--text", "Bonjour") == 1
    one_line(capsys, "--text needs a talker", tmp_path / "cp.gguf")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--text", "Bonjour"], ["no tokenizer (tokenizer.json, or vocab.json and merges.txt)"]),
        (["--text", "Bonjour", "--language", "klingon"], ["klingon", "auto, french"]),
        (["--text", "Bonjour", "--language", "beijing_dialect"], ["auto, french"]),
        (["--text", "Bonjour", "--speaker", "nobody"], ["nobody", "knows serena"]),
        (["--text", "  "], ["some text"]),
    ],
)
def test_texts_that_the_checkpoint_cannot_say(tmp_path, checkpoint, capsys, arguments, words):
    assert golden(tmp_path / "g.npz", "--model", checkpoint, *arguments) == 1
    one_line(capsys, *words)
    assert not list(tmp_path.glob("g*"))


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"prefill": np.zeros((5, 32), np.float32)}, "float32 [T, 64] is wanted"),
        ({"prefill": np.zeros((5, 64))}, "float64 [5, 64]"),
        ({"prefill": np.full((5, 64), np.nan, np.float32)}, "NaN or infinite value at [0, 0]"),
        ({"prefill": np.zeros((1, 64), np.float32)}, "at least 2"),
        ({"other": np.zeros((5, 64), np.float32)}, "no array called prefill"),
        ({"prefill": np.zeros((5, 64), np.float32), "tts_pad": np.zeros((1, 64), np.float32)}, "tts_pad"),
        ({"prefill": np.zeros((5, 64), np.float32), "trailing": np.zeros(64, np.float32)}, "trailing"),
    ],
)
def test_prefills_that_do_not_fit_are_one_line(tmp_path, checkpoint, capsys, arrays, word):
    np.savez(tmp_path / "prefill.npz", **arrays)
    assert golden(tmp_path / "g.npz", "--model", checkpoint, "--from-talker", tmp_path / "prefill.npz") == 1
    one_line(capsys, tmp_path / "prefill.npz", word)


def test_the_dump_and_the_golden_are_two_files(tmp_path, checkpoint, capsys):
    arguments = ["--model", checkpoint, "--text", "Bonjour", "--dump", tmp_path / "g.npz"]
    assert golden(tmp_path / "g.npz", *arguments) == 1
    one_line(capsys, "another name")


def test_a_number_that_the_official_classes_would_make_up_is_asked_for(tmp_path, checkpoint, capsys):
    """Their defaults (end code 4198, say) are not the published checkpoints'."""
    told = json.loads((checkpoint / "config.json").read_text())
    assert "codec_eos_token_id" not in told["talker_config"]
    np.savez(tmp_path / "prefill.npz", prefill=np.zeros((5, 64), np.float32))
    assert golden(tmp_path / "g.npz", "--model", checkpoint, "--from-talker", tmp_path / "prefill.npz") == 1
    one_line(capsys, "codec_eos_token_id is missing")


def test_a_checkpoint_stored_as_float32_gives_the_same_golden(tmp_path, tiny, states):
    folder = Folder(tiny, "f32")
    folder.tensors["talker.model.codec_embedding.weight"] = stored(
        talker_tensors(tiny.spec)["talker.model.codec_embedding.weight"], "bf16"
    )
    folder.write(tmp_path / "f32")
    Folder(tiny).write(tmp_path / "bf16")
    np.save(tmp_path / "codes.npy", np.arange(FRAMES))
    for kind in ("f32", "bf16"):
        arguments = ("--hidden", states[0], "--cb0", tmp_path / "codes.npy", "--model", tmp_path / kind)
        assert golden(tmp_path / f"{kind}.npz", *arguments) == 0
    one, other = load_golden(tmp_path / "f32.npz"), load_golden(tmp_path / "bf16.npz")
    assert np.array_equal(one.digests, other.digests)
    assert one.digest == other.digest
