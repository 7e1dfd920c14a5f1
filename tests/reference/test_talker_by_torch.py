"""The exported talker in llama.cpp against the official talker in float32, on the same inputs.

llama.cpp multiplies BF16 weights with activations that it rounds to BF16 first, so closeness to the official float32
forward is asked of an export with ``--format f32``, which holds the same values; the export as stored may be off by
twice as much as the official forward with its activations rounded so.
"""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from cplab import official, official_talker
from cplab.commandline import run
from cplab.sources.checkpoint import open_checkpoint
from cplab.spec import PRESETS

sys.path.insert(0, str(Path(__file__).parent))

from llama_talker import LlamaTalker
from official_checkpoints import SPECS, saved

pytestmark = [
    pytest.mark.skipif(
        any(find_spec(name) is None for name in ("torch", "transformers", "qwen_tts")),
        reason=f"needs {official.INSTALL}",
    ),
    pytest.mark.skipif(find_spec("llama_cpp") is None, reason="needs llama.cpp: python -m pip install 'cplab[llama]'"),
]

DATA = Path(__file__).parents[2].parent / "shared" / "data"
needs_recordings = pytest.mark.skipif(not DATA.exists(), reason="recorded inputs of the real talker are not there")

#: Of the root mean square over all positions: how far llama.cpp may be from the official float32 forward.
BAR = 1e-4
#: The published talkers but for the number of layers.
REAL = {"layers": 2, "heads": 16, "kv_heads": 8, "head_dim": 128}
WIDTHS = {"0.6b": REAL | {"intermediate": 3072}, "1.7b": REAL | {"intermediate": 6144}}


def recorded(width, positions=None):
    """Real talker inputs ``[10, 1024]``, repeated to the width that is wanted and to as many positions."""
    inputs = np.load(DATA / "talker_in.npy")
    tiled = np.tile(inputs, (1, -(-width // inputs.shape[1])))[:, :width]
    return np.ascontiguousarray(np.resize(tiled, (positions or len(tiled), width)), np.float32)


def generated(width, positions, seed=5):
    """Inputs of about the recorded scale where no recording is there."""
    return np.random.default_rng(seed).normal(0, 0.6, (positions, width)).astype(np.float32)


def by_torch(model, inputs):
    """Hidden states after the final norm and CB0 logits of every position, from the official talker."""
    import torch

    with torch.inference_mode():
        output = model.talker.model(inputs_embeds=torch.tensor(inputs)[None], use_cache=False)
        return output.last_hidden_state[0].numpy(), model.talker.codec_head(output.last_hidden_state)[0].numpy()


@contextmanager
def rounded_activations(module):
    """The naive reading of BF16: what enters a matrix is rounded to BF16 first, sums stay float32."""
    import torch

    def rounding(linear, given):
        return (given[0].bfloat16().float(), *given[1:])

    hooks = [m.register_forward_pre_hook(rounding) for m in module.modules() if isinstance(m, torch.nn.Linear)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def by_llama(path, inputs, prefill=None):
    """The same from llama.cpp, the first ``prefill`` positions at once and the others one by one."""
    talker = LlamaTalker(path)
    try:
        first = len(inputs) if prefill is None else prefill
        parts = [talker.feed(inputs[:first])]
        parts += [talker.feed(inputs[k : k + 1]) for k in range(first, len(inputs))]
    finally:
        talker.close()
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def exported(folder, path, kind=None):
    from cplab.__main__ import app

    arguments = ["export", str(folder), "--talker", str(path), *(["--format", kind] if kind else [])]
    assert run(app, arguments) == 0
    return path


def furthest(ours, theirs):
    """Largest difference, in units of the root mean square."""
    return float(np.abs(ours - theirs).max() / np.sqrt(np.mean(np.square(theirs, dtype=np.float64))))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("name", SPECS)
def test_hidden_states_and_logits_are_the_official_ones(tmp_path, name, dtype):
    folder = tmp_path / "m"
    saved(folder, SPECS[name], dtype=dtype, layers=3)
    model = official_talker.build(open_checkpoint(folder))
    path = exported(folder, tmp_path / "talker.gguf", "f32")
    inputs = generated(SPECS[name].talker_hidden, 24)
    hidden, logits = by_torch(model, inputs)
    ours, our_logits = by_llama(path, inputs, prefill=19)
    assert furthest(ours, hidden) <= BAR
    assert furthest(our_logits, logits) <= BAR
    assert np.array_equal(our_logits.argmax(axis=-1), logits.argmax(axis=-1))


@pytest.mark.parametrize("name", SPECS)
def test_float32_weights_are_exported_as_they_are(tmp_path, name):
    folder = tmp_path / "m"
    saved(folder, SPECS[name], dtype="float32", layers=2)
    model = official_talker.build(open_checkpoint(folder))
    inputs = generated(SPECS[name].talker_hidden, 8)
    hidden, logits = by_torch(model, inputs)
    ours, our_logits = by_llama(exported(folder, tmp_path / "talker.gguf"), inputs)
    assert furthest(ours, hidden) <= BAR
    assert furthest(our_logits, logits) <= BAR


@needs_recordings
@pytest.mark.slow
@pytest.mark.parametrize("preset", list(WIDTHS))
def test_at_real_width_with_recorded_inputs(tmp_path, preset):
    spec = PRESETS[preset]
    folder = tmp_path / "m"
    saved(folder, spec, seed=3, **WIDTHS[preset])
    model = official_talker.build(open_checkpoint(folder))
    inputs = recorded(spec.talker_hidden, 24)
    hidden, logits = by_torch(model, inputs)
    exact = by_llama(exported(folder, tmp_path / "talker_f32.gguf", "f32"), inputs, prefill=19)
    stored = by_llama(exported(folder, tmp_path / "talker.gguf"), inputs, prefill=19)
    with rounded_activations(model.talker):
        low = by_torch(model, inputs)
    columns = zip(("hidden", "logits"), exact, stored, low, (hidden, logits), strict=True)
    for name, ours, rounded, naive, theirs in columns:
        print(
            f"{preset} {name}: f32 {furthest(ours, theirs):.2e}, bf16 {furthest(rounded, theirs):.2e} of the rms, "
            f"naive {furthest(naive, theirs):.2e}"
        )
        assert furthest(ours, theirs) <= BAR
        assert furthest(rounded, theirs) <= 2 * furthest(naive, theirs)


@pytest.mark.parametrize("prefill", [1, 7, 24])
def test_how_the_inputs_are_cut_changes_nothing_but_rounding(tmp_path, prefill):
    spec, folder = SPECS["1.7B-like"], tmp_path / "m"
    saved(folder, spec, layers=2)
    path = exported(folder, tmp_path / "talker.gguf", "f32")
    inputs = generated(spec.talker_hidden, 24)
    whole, cut = by_llama(path, inputs), by_llama(path, inputs, prefill)
    assert furthest(cut[0], whole[0]) <= BAR
    assert furthest(cut[1], whole[1]) <= BAR


def test_another_theta_would_be_told(tmp_path):
    """1e4, the official class's default, at positions where it matters."""
    spec, folder = SPECS["0.6B-like"], tmp_path / "m"
    saved(folder, spec, layers=3)
    model = official_talker.build(open_checkpoint(folder))
    told = json.loads((folder / "config.json").read_text())
    told["talker_config"]["rope_theta"] = 10000
    (folder / "config.json").write_text(json.dumps(told))
    inputs = generated(spec.talker_hidden, 24)
    ours = by_llama(exported(folder, tmp_path / "talker.gguf", "f32"), inputs)
    assert furthest(ours[0], by_torch(model, inputs)[0]) > 100 * BAR
