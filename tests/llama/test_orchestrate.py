"""The talker in llama.cpp and the whole command, on the tiny seeded models."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="needs the extra llama: python -m pip install 'cplab[llama]'")

sys.path.insert(0, str(Path(__file__).parent.parent / "cplab"))
from small_models import projected_model

from cplab.__main__ import app
from cplab.cb0 import Rules, greedy
from cplab.commandline import run
from cplab.errors import BadInputError, EngineError
from cplab.llama import probing
from cplab.orchestrate import seeded_prompt
from cplab.orchestrate_prepare import Asked, prepared
from cplab.sources import gguf as gguf_files
from cplab.sources import gguf_writing
from cplab.sources.synthetic_talker import file_of
from cplab.sources.talker import Qwen3, qwen3_name, talker_shapes
from cplab.sources.talker_file import read_talker_file
from cplab.talker import PLAIN, Room, Talker, talker_file, talker_settings
from cplab.talker_dump import TalkerDump

TALKER = "synthetic-talker:tiny:f32"
BASE = ("orchestrate", "--talker", TALKER, "--cp", "synthetic:tiny", "--variant", "kv_f32", "--threads", "1")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """Settings found here are of no use to anybody."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def made(room=None, name=TALKER):
    return Talker(talker_file(name), 1, room or Room(19, 12), PLAIN)


def command(*more):
    return run(app, [*BASE, *map(str, more)])


def written(folder):
    return np.load(folder / "codes.npy"), json.loads((folder / "times.json").read_text())


# -- the talker -------------------------------------------------------------------------------------------------------


def test_hidden_states_and_logits_are_of_one_decode():
    """The head times the state is the logits, so that both are of the same position and after the final norm."""
    from cplab.sources.synthetic_talker import tensors

    head = next(t for t in tensors("tiny") if "codec_head" in t.name).f32()
    talker, prompt = made(), seeded_prompt(64)
    for heard in (talker.prefill(prompt.prefill), talker.step(prompt.trailing[0])):
        assert heard.hidden.shape == (64,)
        assert heard.logits.shape == (1280,)
        assert np.abs(head @ heard.hidden - heard.logits).max() < 1e-4 * np.abs(heard.logits).max()
        assert 3 < heard.hidden.std() < 14  # the real talker's is 6.6


def test_step_by_step_is_all_at_once():
    X = seeded_prompt(64).prefill
    whole, stepped = made(Room(19, 1)).prefill(X), made(Room(10, 9))
    heard = stepped.prefill(X[:10])
    for x in X[10:]:
        heard = stepped.step(x)
    assert np.abs(heard.hidden - whole.hidden).max() < 1e-3
    assert np.abs(heard.logits - whole.logits).max() < 1e-3


def test_a_prefill_begins_anew():
    talker, X = made(), seeded_prompt(64).prefill
    first = talker.prefill(X)
    talker.step(X[0])
    again = talker.prefill(X)
    assert again.hidden.tobytes() == first.hidden.tobytes()
    assert again.logits.tobytes() == first.logits.tobytes()


def test_more_than_there_is_room_for_is_refused():
    talker, X = made(Room(18, 300)), seeded_prompt(64).prefill
    with pytest.raises(BadInputError, match="at most"):
        talker.prefill(X)
    with pytest.raises(BadInputError, match="at most"):
        talker.prefill(X[:, :32])
    talker = made(Room(19, 1))
    talker.prefill(X)
    talker.step(X[0])
    with pytest.raises(BadInputError, match="full at 20"):
        talker.step(X[0])


def test_settings_are_tried_once_for_a_talker(monkeypatch):
    file = read_talker_file(file_of("synthetic-talker:tiny"))
    choice = talker_settings(file, 1)
    assert "that work, of 12 tried" in choice.note
    monkeypatch.setattr(probing, "try_all", lambda *_: pytest.fail("tried again"))
    assert talker_settings(file, 1).settings == choice.settings


def test_a_talker_that_llama_cpp_refuses_is_an_error(tmp_path):
    path = tmp_path / "t.gguf"
    path.write_bytes(file_of(TALKER).read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(EngineError, match="cannot load it"):
        Talker(read_talker_file(path), 1, Room(1, 1), PLAIN)


# -- the command ------------------------------------------------------------------------------------------------------


def test_codes_times_and_figures(tmp_path, capsys):
    assert command("--frames", 12, "--out", tmp_path / "o") == 0
    codes, times = written(tmp_path / "o")
    assert codes.dtype == np.int32
    assert codes.shape == (12, 3)
    assert len(np.unique(codes, axis=0)) > 6
    for name in ("talker_ns", "cp_ns", "frame_ns"):
        assert len(times[name]) == 12
        assert all(isinstance(ns, int) and ns > 0 for ns in times[name])
    assert times["prefill_ns"] > 0
    text = capsys.readouterr().out
    for figure in ("29.3 ms", "267.0 ms", "0.124 s", "7.705 s", "RTF 3.61", "T=19", "Kazeia tablet"):
        assert figure in text
    assert "12 frames" in text
    assert command("--frames", 12, "--out", tmp_path / "p") == 0
    assert np.array_equal(written(tmp_path / "p")[0], codes)


def test_frame_by_frame_it_is_talker_then_code_predictor(tmp_path):
    """The command's codes again, from a talker and a predictor of another engine, written out here."""
    from cplab.sources import load_model
    from cplab.variant import get_variant

    assert command("--frames", 10, "--out", tmp_path) == 0
    codes, _ = written(tmp_path)
    model, prompt, talker = load_model("synthetic:tiny"), seeded_prompt(64), made()
    predictor = get_variant("numpy_f32").build(model, 1)
    rules, heard, spoken = Rules.of_vocabulary(1280), talker.prefill(prompt.prefill), []
    for frame in range(10):
        cb0 = greedy(rules.ruled(heard.logits, spoken))
        embed = talker.codec_embedding[cb0]
        others = predictor.predict(heard.hidden[None], embed[None])[0]
        assert codes[frame].tolist() == [cb0, *others.tolist()]
        x = embed
        for g, code in enumerate(others):
            x = x + model.f32(f"model.codec_embedding.{g}.weight")[code]
        heard = talker.step(x + (prompt.trailing[frame] if frame < len(prompt.trailing) else prompt.tts_pad))
        spoken.append(cb0)


def test_sampling_hangs_on_the_seed_alone(tmp_path):
    found = {}
    for name, more in {
        "greedy": (),
        "a": ("--sample",),
        "b": ("--sample", "--seed", 0),
        "c": ("--sample", "--seed", 1),
    }.items():
        assert command("--frames", 8, "--out", tmp_path / name, *more) == 0
        found[name] = written(tmp_path / name)[0]
    assert np.array_equal(found["a"], found["b"])
    assert not np.array_equal(found["a"], found["c"])
    assert not np.array_equal(found["a"], found["greedy"])


def test_a_repetition_penalty_changes_what_is_repeated(tmp_path):
    assert command("--frames", 12, "--repetition-penalty", 8, "--out", tmp_path) == 0
    codes, _ = written(tmp_path)
    assert len(set(codes[:, 0].tolist())) == 12


@pytest.fixture
def dump(tmp_path):
    """A dump of what the loop itself says, with the rules as the official class records them."""
    asked = Asked(TALKER, "synthetic:tiny", "kv_f32", 1, 6)
    with prepared(asked) as ready:
        speech = ready.speech
        said = speech.run(6)
        tables = [t.f32() for n, t in sorted(_tables().items())]
        vocab = len(speech.talker.codec_embedding)
        digest = _model().digest()
        return TalkerDump(
            prefill=speech.prompt.prefill,
            trailing=speech.prompt.trailing,
            tts_pad=speech.prompt.tts_pad,
            tts_bos=speech.prompt.tts_pad,
            tts_eos=speech.prompt.tts_pad,
            hidden=said.hidden,
            logits=np.zeros((6, vocab), np.float32),
            codes=said.codes,
            step_inputs=said.inputs,
            final_hidden=said.hidden[-1],
            final_logits=np.zeros(vocab, np.float32),
            codec_embedding=speech.talker.codec_embedding,
            code_predictor_tables=np.stack(tables),
            ended="frames",
            talker_digest="",
            code_predictor_digest=digest,
            config={},
            rules={
                "eos_token_id": 358,
                "suppress_tokens": [c for c in range(256, 1280) if c != 358],
                "min_new_tokens": 2,
                "repetition_penalty": 1.0,
            },
            provenance={},
        )


def _model():
    from cplab.sources import load_model

    return load_model("synthetic:tiny")


def _tables():
    return {n: t for n, t in _model().tensors.items() if "codec_embedding" in n}


def test_beside_a_dump_all_is_said(tmp_path, capsys, dump):
    dump.save(tmp_path / "d.npz")
    assert command("--frames", 9, "--dump", tmp_path / "d.npz", "--out", tmp_path / "o") == 0
    text = capsys.readouterr().out
    assert "18/18 codes equal in 6 frames: CB0 6/6 CB1 6/6 CB2 6/6" in text
    assert "6 steps: rmse at most 0, cosine at least 1.000; 6 have the bits" in text
    told = written(tmp_path / "o")[1]["dump"]
    assert told["codes_equal"] == [6, 6, 6]
    assert told["next_input_rmse"] == [0.0] * 6


def test_a_dump_of_other_tables_is_told_and_the_sum_fails(tmp_path, capsys, dump):
    import dataclasses

    tables = dump.code_predictor_tables.copy()
    tables[1] += np.float32(1)
    dataclasses.replace(dump, code_predictor_tables=tables, code_predictor_digest="f" * 16).save(tmp_path / "d.npz")
    assert command("--frames", 6, "--dump", tmp_path / "d.npz") == 2
    text = capsys.readouterr().out
    assert "another code predictor's weights" in text
    assert "THE SUM IS WRONG" in text


def test_a_teacher_pins_all_codes(tmp_path, capsys, dump):
    teacher = (dump.codes[::-1] + 1) % 256
    np.save(tmp_path / "t.npy", teacher)
    assert command("--frames", 20, "--teacher", tmp_path / "t.npy", "--out", tmp_path / "o") == 0
    assert np.array_equal(written(tmp_path / "o")[0], teacher)
    predicted = np.load(tmp_path / "o" / "predicted.npy")
    assert predicted.shape == (6, 3)
    assert not np.array_equal(predicted, teacher)
    text = capsys.readouterr().out
    assert "6 frames" in text
    assert f"CB0 {int((predicted[:, 0] == teacher[:, 0]).sum())}/6" in text
    # Taught its own words it says them.
    np.save(tmp_path / "t.npy", dump.codes)
    assert command("--frames", 6, "--teacher", tmp_path / "t.npy", "--out", tmp_path / "o") == 0
    assert np.array_equal(np.load(tmp_path / "o" / "predicted.npy"), dump.codes)


def test_pools_are_measured_in_turns(tmp_path, capsys):
    assert command("--frames", 5, "--check-pools", 2, "--out", tmp_path) == 0
    pools = written(tmp_path)[1]["pools"]
    for name in ("talker", "cp"):
        for kind in ("alone", "cold", "in_loop"):
            assert len(pools[name][f"{kind}_ns"]) == 10
    assert pools["cpu_share"] > 0
    text = capsys.readouterr().out
    assert "in the loop" in text
    assert "OpenMP" in text


# -- what is refused --------------------------------------------------------------------------------------------------


def refused(capsys, *arguments):
    """The one line that an invocation ends with."""
    assert run(app, ["orchestrate", *map(str, arguments)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def talker_gguf(path, **dims):
    """A talker of other dimensions, all zeros."""
    values = {"hidden": 64, "intermediate": 64, "layers": 1, "heads": 2, "kv_heads": 1, "head_dim": 32, "vocab": 1280}
    made = Qwen3(**(values | dims), context=256, rope_theta=1e6, rms_eps=1e-6)
    kind = gguf_writing.FORMATS["f32"]
    declared = [gguf_writing.Declared(qwen3_name(n), shape, kind) for n, shape in talker_shapes(made).items()]
    arrays = (np.zeros(shape, np.float32) for shape in talker_shapes(made).values())
    gguf_writing.write_tensors(path, "qwen3", made.keys(), declared, arrays)
    return path


def test_a_talker_of_another_width(capsys, tmp_path):
    path = talker_gguf(tmp_path / "t.gguf", hidden=128)
    error = refused(capsys, "--talker", path, "--cp", "synthetic:tiny")
    assert f"{path}: a talker of width 128; the code predictor wants 64" in error


def test_a_code_predictor_of_another_width(capsys, tmp_path):
    model, path = projected_model(), tmp_path / "cp.gguf"
    gguf_writing.write(path, model.spec, model.tensors.values(), name="projected")
    assert gguf_files.read(path).spec.talker_hidden == 96
    assert "width 64; the code predictor wants 96" in refused(capsys, "--talker", TALKER, "--cp", path)


def test_a_talker_of_another_vocabulary(capsys, tmp_path):
    path = talker_gguf(tmp_path / "t.gguf", vocab=3072)
    assert "a vocabulary of 3072; beside codebooks of 256 codes it has 1280" in refused(
        capsys, "--talker", path, "--cp", "synthetic:tiny"
    )


def test_a_talker_of_another_architecture(capsys, tmp_path):
    path = tmp_path / "cp.gguf"
    gguf_writing.write(path, _model().spec, _model().tensors.values(), name="tiny")
    assert "not a talker ('qwen3')" in refused(capsys, "--talker", path, "--cp", "synthetic:tiny")


def test_a_dump_of_other_widths(capsys, tmp_path, dump):
    model, path = projected_model(), tmp_path / "cp.gguf"
    gguf_writing.write(path, model.spec, model.tensors.values(), name="projected")
    dump.save(tmp_path / "d.npz")
    talker = talker_gguf(tmp_path / "t.gguf", hidden=96, vocab=1072)
    error = refused(capsys, "--talker", talker, "--cp", path, "--dump", tmp_path / "d.npz")
    assert "a dump of width 64, 3 codebooks of 256 codes; the code predictor has width 96, 5 codebooks" in error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--frames", 0), "--frames 0: at least 1"),
        (("--frames", -3), "--frames -3: at least 1"),
        (("--variant", "kv_bf61"), "no variant 'kv_bf61'; did you mean"),
        (("--talker", "no/such.gguf"), "no/such.gguf: No such file"),
        (("--talker", "synthetic-talker:huge"), "no such seeded talker"),
        (("--cp", "synthetic:huge"), "no such seeded model"),
        (("--dump", "no/such.npz"), "no/such.npz"),
        (("--teacher", "no/such.npy"), "no/such.npy"),
        (("--seed", 3), "--seed is of --sample"),
        (("--sample", "--seed", -1), "--seed -1: 0 to 2**64 - 1"),
        (("--sample", "--seed", 2**64), "0 to 2**64 - 1"),
        (("--check-pools", -1), "--check-pools -1"),
        (("--threads", 0), "threads"),
        (("--repetition-penalty", 0), "--repetition-penalty 0"),
    ],
)
def test_wrong_use_is_one_line(capsys, arguments, told):
    assert told in refused(capsys, *BASE[1:], *arguments)


def test_damaged_files_are_one_line(capsys, tmp_path):
    for name, option in (("t.gguf", "--talker"), ("d.npz", "--dump"), ("c.npy", "--teacher")):
        (tmp_path / name).write_bytes(b"GGUF nothing")
        assert name in refused(capsys, *BASE[1:], option, tmp_path / name)
