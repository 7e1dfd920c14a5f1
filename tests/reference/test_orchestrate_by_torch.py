"""The lab's loop against the official talker's own ``generate``: the same codes, and the same bits fed back."""

from __future__ import annotations

import dataclasses
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cplab import Sampling, official, official_talker
from cplab.cb0 import Rules, drawn
from cplab.commandline import run
from cplab.official_prompt import prefill_call
from cplab.recorded import Prompt
from cplab.sources.checkpoint import open_checkpoint
from cplab.talker_dumping import make_dump

sys.path.insert(0, str(Path(__file__).parent))

from official_checkpoints import SPECS, saved

pytestmark = [
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")),
        reason=f"needs {official.INSTALL}",
    ),
    pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama.cpp: python -m pip install 'cplab[llama]'"),
]

FRAMES = 20


@pytest.fixture(scope="module", autouse=True)
def _one_thread(tmp_path_factory):
    """Models this small are faster on one thread; settings found here are of no use to anybody."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("CPLAB_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
    torch.set_num_threads(before)


def prompt(width):
    """Nineteen positions, text for twelve frames, then the pad."""
    rng = np.random.default_rng(8)
    rows = rng.normal(0, 0.6, (19 + 12 + 1, width)).astype(np.float32)
    return Prompt(rows[:19], rows[19:31], rows[31])


@pytest.fixture(scope="module", params=[(name, penalty) for name in SPECS for penalty in (1.05, 1.0)], ids=str)
def said(request, tmp_path_factory):
    """A checkpoint, what its official talker says of the prompt in twenty frames, and its talker exported as F32."""
    from cplab.__main__ import app

    name, penalty = request.param
    folder = tmp_path_factory.mktemp("m")
    spec = SPECS[name]
    saved(folder, spec, layers=3)
    (folder / "generation_config.json").write_text(json.dumps({"repetition_penalty": penalty}))
    dump = make_dump(open_checkpoint(folder), prompt(spec.talker_hidden), FRAMES)
    dump.save(folder / "dump.npz")
    assert run(app, ["export", str(folder), "--talker", str(folder / "t.gguf"), "--format", "f32"]) == 0
    return folder, dump, penalty


def orchestrated(folder, *more):
    """Exit code, codes and times of the command on a checkpoint's folder."""
    from cplab.__main__ import app

    options = ("--talker", folder / "t.gguf", "--cp", folder, "--variant", "kv_bf16", "--threads", 1, "--out", folder)
    code = run(app, ["orchestrate", *map(str, options), *map(str, more)])
    return code, np.load(folder / "codes.npy"), json.loads((folder / "times.json").read_text())


def test_twenty_frames_are_the_official_ones_and_so_are_the_bits_fed_back(said, capsys):
    folder, dump, penalty = said
    assert len(dump) == FRAMES
    assert len(np.unique(dump.codes, axis=0)) == FRAMES
    assert dump.rules["repetition_penalty"] == penalty
    code, codes, times = orchestrated(folder, "--frames", FRAMES, "--dump", folder / "dump.npz")
    assert code == 0
    assert np.array_equal(codes, dump.codes)
    told = times["dump"]
    assert told["codes_equal"] == [FRAMES] * 16
    assert told["steps"] == list(range(FRAMES))
    assert told["next_input_rmse"] == [0.0] * FRAMES
    assert told["next_input_exact"] == FRAMES
    text = capsys.readouterr().out
    assert f"{16 * FRAMES}/{16 * FRAMES} codes equal in {FRAMES} frames" in text
    assert "rmse at most 0, cosine at least 1.000" in text
    assert "another code predictor's weights" not in text


def test_the_inputs_have_the_bits_of_the_official_talkers(said):
    """What the official talker was fed, recorded by a hook, is the lab's sum to the last bit."""
    _, dump, _ = said
    for frame in range(FRAMES):
        assert dump.next_input(frame).tobytes() == dump.step_inputs[frame].tobytes()


def test_the_official_teacher_is_followed(said):
    folder, dump, _ = said
    np.save(folder / "teacher.npy", dump.codes)
    code, codes, times = orchestrated(
        folder, "--frames", 99, "--teacher", folder / "teacher.npy", "--dump", folder / "dump.npz"
    )
    assert code == 0
    assert np.array_equal(codes, dump.codes)
    assert np.array_equal(np.load(folder / "predicted.npy"), dump.codes)
    assert times["dump"]["next_input_exact"] == FRAMES


def test_the_end_comes_where_the_official_one_comes(said, tmp_path):
    """A code that was spoken is made the end code, for both."""
    folder, dump, _ = said
    config = json.loads((folder / "config.json").read_text())
    end = int(dump.codes[6, 0])
    before = config["talker_config"]["codec_eos_token_id"]
    config["talker_config"]["codec_eos_token_id"] = end
    (folder / "config.json").write_text(json.dumps(config))
    try:
        ended = make_dump(open_checkpoint(folder), prompt(dump.prefill.shape[1]), FRAMES)
    finally:
        config["talker_config"]["codec_eos_token_id"] = before
        (folder / "config.json").write_text(json.dumps(config))
    assert ended.ended == "end code"
    assert 2 <= len(ended) < FRAMES
    ended.save(tmp_path / "e.npz")
    code, codes, times = orchestrated(folder, "--frames", FRAMES, "--dump", tmp_path / "e.npz")
    assert code == 0
    assert np.array_equal(codes, ended.codes)
    assert times["ended"] == "end code"


def test_a_dump_of_the_other_width_is_one_line(said, tmp_path, capsys):
    folder, dump, _ = said
    wide = np.concatenate([dump.prefill, dump.prefill], axis=1)
    names = ("prefill", "trailing", "hidden", "step_inputs", "codec_embedding", "code_predictor_tables")
    vectors = ("tts_pad", "tts_bos", "tts_eos", "final_hidden")
    twice = {n: np.concatenate([getattr(dump, n)] * 2, axis=-1) for n in (*names, *vectors)}
    assert np.array_equal(twice["prefill"], wide)
    dataclasses.replace(dump, **twice).save(tmp_path / "d.npz")
    from cplab.__main__ import app

    capsys.readouterr()
    arguments = ("--talker", folder / "t.gguf", "--cp", folder, "--dump", tmp_path / "d.npz")
    assert run(app, ["orchestrate", *map(str, arguments)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"a dump of width {wide.shape[1]}" in error


# -- the rules and the draw against transformers' own -----------------------------------------------------------------


def test_the_official_rules_are_the_labs_defaults(tmp_path):
    saved(tmp_path, SPECS["0.6B-like"], layers=1)
    checkpoint = open_checkpoint(tmp_path)
    rules = prefill_call(official_talker.build(checkpoint), checkpoint, prompt(64)).rules
    ours, theirs = Rules.of_vocabulary(3072, 1.05), Rules.recorded(rules, 3072)
    assert (ours.end, ours.least, ours.penalty) == (theirs.end, theirs.least, theirs.penalty) == (2150, 2, 1.05)
    assert np.array_equal(ours.suppressed, theirs.suppressed)


@pytest.mark.parametrize("spoken", [[], [3], [3, 5, 3], list(range(200))])
def test_ruled_logits_have_transformers_bits(spoken):
    import torch
    from transformers.generation import logits_process as theirs

    rules = Rules.of_vocabulary(3072, 1.05)
    row = np.random.default_rng(len(spoken)).normal(0, 4, 3072).astype(np.float32)
    chain = theirs.LogitsProcessorList(
        [
            theirs.RepetitionPenaltyLogitsProcessor(1.05),
            theirs.MinNewTokensLengthLogitsProcessor(0, 2, rules.end, device="cpu"),
            theirs.SuppressTokensLogitsProcessor(rules.suppressed.tolist(), device="cpu"),
        ]
    )
    expected = chain(torch.tensor([spoken], dtype=torch.long), torch.tensor(row)[None])[0].numpy()
    assert np.array_equal(rules.ruled(row, spoken), expected)


@pytest.mark.parametrize(("top_k", "top_p"), [(50, 1.0), (50, 0.8), (None, 0.5), (1, 1.0), (3072, 0.99)])
def test_what_can_be_drawn_is_what_transformers_keeps(top_k, top_p):
    import torch
    from transformers.generation import logits_process as theirs

    scores = Rules.of_vocabulary(3072).ruled(np.random.default_rng(1).normal(0, 3, 3072).astype(np.float32), [1, 2])
    chain = theirs.LogitsProcessorList([theirs.TemperatureLogitsWarper(0.9)])
    if top_k:
        chain.append(theirs.TopKLogitsWarper(top_k))
    if top_p < 1:
        chain.append(theirs.TopPLogitsWarper(top_p))
    expected = np.isfinite(chain(torch.zeros((1, 0), dtype=torch.long), torch.tensor(scores)[None])[0].numpy())
    kept = []
    for code in np.flatnonzero(np.isfinite(scores)):
        noise = np.zeros((1, 1, 3072), np.float32)
        noise[0, 0, code] = 1e6
        if drawn(scores, Sampling(noise=noise, top_k=top_k, top_p=top_p), 0) == code:
            kept.append(code)
    assert kept == np.flatnonzero(expected).tolist()
