"""Checkpoints that the official classes save themselves, read through the lab's own path and run by both.

config.json is written by hand in the published layout, and, in one test, by the official class.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cplab import official
from cplab.commandline import run
from cplab.official_import import official_modules
from cplab.oracle import Oracle
from cplab.sources import load_model, synthetic
from cplab.sources.checkpoint import open_checkpoint
from cplab.spec import PRESETS
from cplab.variant import Trace, get_variant

sys.path.insert(0, str(Path(__file__).parent))

from official_checkpoints import SPECS, saved

pytestmark = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")), reason=f"needs {official.INSTALL}"
)

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_recordings = pytest.mark.skipif(not DATA.exists(), reason="recorded codes and hidden states are not there")

#: Of a pass's root mean square: how far the lab's logits may be from the official float32 ones.
BAR = 1e-5


def table_of(folder):
    """The talker's codec embedding, ``[3072, talker_hidden]``."""
    stored = open_checkpoint(folder).stored["talker.model.codec_embedding.weight"]
    return stored.tensor("codec_embedding").f32()


def recorded(spec, folder, frames=101):
    """Real codes teacher-forced, ``[frames, 15]``, with the embeddings of their CB0 and real hidden states."""
    codes = np.load(DATA / "icl_ref_codes.npy")[:frames].astype(np.int32)
    states = np.load(DATA / "talker_prefill.npy")
    rows = np.arange(len(codes)) % len(states)
    hidden = np.resize(states, (len(states), spec.talker_hidden))[rows] if spec.talker_hidden > 1024 else states[rows]
    hidden = np.ascontiguousarray(hidden[:, : spec.talker_hidden], np.float32)
    return hidden, table_of(folder)[codes[:, 0]], np.ascontiguousarray(codes[:, 1:])


def furthest(ours, theirs):
    """Largest difference of a logit, in units of its pass's root mean square."""
    rms = np.sqrt(np.mean(np.square(theirs, dtype=np.float64), axis=-1))
    return float((np.abs(ours - theirs).max(axis=-1) / rms).max())


def lab(folder, hidden, cb0, forced=None):
    """Codes and logits of the lab's decoder on the checkpoint as it lies there."""
    trace = Trace()
    predictor = get_variant("kv_bf16").build(load_model(str(folder)), 2)
    codes = predictor.predict(hidden, cb0, forced=forced, trace=trace)
    return codes, trace.logits


@pytest.mark.parametrize("shards", [False, True], ids=["single", "sharded"])
@pytest.mark.parametrize("name", SPECS)
def test_codes_and_logits_are_the_official_ones(tmp_path, name, shards):
    spec = SPECS[name]
    module = saved(tmp_path, spec, shards=shards).talker.code_predictor
    assert (tmp_path / "model.safetensors.index.json").exists() == shards
    model = load_model(str(tmp_path))
    assert model.spec == spec
    assert {t.format.name for t in model.tensors.values()} == {"bf16"}
    hidden = synthetic.hidden_states(name, 4, spec.talker_hidden)
    cb0 = table_of(tmp_path)[[5, 77, 2047, 3000]]
    codes, logits = official.greedy_codes(module, hidden, cb0)
    ours, our_logits = lab(tmp_path, hidden, cb0)
    assert np.array_equal(ours, codes)
    assert furthest(our_logits, logits) <= BAR
    frame = Oracle(model).frame(hidden[3], cb0[3])
    assert np.array_equal(frame.codes, codes[3])
    assert np.array_equal(frame.logits, our_logits[3])


@needs_recordings
@pytest.mark.parametrize("name", SPECS)
def test_recorded_codes_teacher_forced(tmp_path, name):
    spec = SPECS[name]
    module = saved(tmp_path, spec, seed=2).talker.code_predictor
    hidden, cb0, forced = recorded(spec, tmp_path)
    theirs = official.forced_logits(module, hidden, cb0, forced)
    assert furthest(lab(tmp_path, hidden, cb0, forced)[1], theirs) <= BAR


@needs_recordings
@pytest.mark.slow
@pytest.mark.parametrize("preset", ["0.6b", "1.7b"])
def test_at_real_width_with_recorded_codes_and_hidden_states(tmp_path, preset):
    spec = PRESETS[preset]
    module = saved(tmp_path, spec, seed=3).talker.code_predictor
    assert load_model(str(tmp_path)).spec == spec
    hidden, cb0, forced = recorded(spec, tmp_path, 101 if preset == "0.6b" else 8)
    theirs = official.forced_logits(module, hidden, cb0, forced)
    assert furthest(lab(tmp_path, hidden, cb0, forced)[1], theirs) <= BAR
    some = slice(0, 6)
    codes, logits = official.greedy_codes(module, hidden[some], cb0[some])
    ours, our_logits = lab(tmp_path, hidden[some], cb0[some])
    assert np.array_equal(ours, codes)
    assert furthest(our_logits, logits) <= BAR


@pytest.mark.parametrize("name", SPECS)
def test_exported_files_are_the_same_model(tmp_path, name):
    from cplab.__main__ import app

    folder, output, parts = tmp_path / "m", tmp_path / "cp.gguf", tmp_path / "k"
    saved(folder, SPECS[name], shards=True)
    assert run(app, ["export", str(folder), "-o", str(output), "--talker", str(tmp_path / "t.gguf")]) == 0
    digest = load_model(str(folder)).digest()
    assert load_model(str(output)).digest() == digest
    assert run(app, ["export", str(folder), "--kazeia", str(parts)]) == 0
    assert load_model(str(parts / "cp_f16.gguf")).spec == SPECS[name]


@pytest.mark.parametrize("name", SPECS)
def test_the_config_that_the_classes_save_is_read_too(tmp_path, name):
    saved(tmp_path, SPECS[name])
    digest = load_model(str(tmp_path)).digest()
    configuration, _ = official_modules()
    told = json.loads((tmp_path / "config.json").read_text())
    configuration.Qwen3TTSConfig(**told).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) != told
    assert load_model(str(tmp_path)).digest() == digest


def test_the_classes_default_theta_is_not_the_checkpoints(tmp_path):
    """A reader that took 1e4, the class's default, would be told apart here."""
    spec = SPECS["0.6B-like"]
    module = saved(tmp_path, spec).talker.code_predictor
    told = json.loads((tmp_path / "config.json").read_text())
    told["talker_config"]["code_predictor_config"]["rope_theta"] = 10000
    (tmp_path / "config.json").write_text(json.dumps(told))
    hidden, cb0 = synthetic.hidden_states("theta", 2, spec.talker_hidden), table_of(tmp_path)[[1, 2]]
    forced = np.zeros((2, spec.passes), np.int32)
    theirs = official.forced_logits(module, hidden, cb0, forced)
    assert furthest(lab(tmp_path, hidden, cb0, forced)[1], theirs) > 1000 * BAR
