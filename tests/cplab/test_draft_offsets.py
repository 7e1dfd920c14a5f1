"""Vectors for drafts: fitted where they help on frames that were not fitted on, kept beside the model, of it alone."""

from __future__ import annotations

import numpy as np
import pytest
from small_models import with_tensors

from cplab.__main__ import app
from cplab.commandline import GOOD, WRONG_USE, run
from cplab.errors import BadInputError, GoldenError
from cplab.golden_making import golden_for, make_golden
from cplab.kernels import plan
from cplab.model import Model
from cplab.sources import load_model
from cplab.speculation import offsets
from cplab.speculation.decoder import SpeculativeDecoder

NAME = "synthetic:tiny-predictable"


@pytest.fixture(scope="module")
def predictable():
    return load_model(NAME)


@pytest.fixture(scope="module")
def drifting(predictable):
    """Every embedding has the same vector on top, which the heads after the first do not want: offsets can undo it."""
    spec = predictable.spec
    drift = np.random.default_rng(2).normal(0, 3, spec.hidden).astype(np.float32)
    changes = {}
    for g in range(spec.passes):
        name = f"model.codec_embedding.{g}.weight"
        changes[name.replace(".", "__")] = predictable.f32(name) + (g + 1) * drift / 5
    return with_tensors(predictable, **changes)


def test_least_squares_is_the_mean_difference_of_hidden_states(predictable):
    golden = golden_for(predictable)
    naive = offsets.Naive(predictable, "f32")
    states = naive.states(naive.inputs(golden.hidden, golden.cb0_embed, golden.codes))
    task = offsets._Task(states, golden.codes, [], 1)
    found = task.mean_difference(slice(0, 20))
    pairs = [(states[f, g], states[f, g + 2]) for f in range(20) for g in range(1, 14)]
    assert found == pytest.approx(np.mean([b - a for a, b in pairs], axis=0), abs=1e-5)


def test_the_gradient_is_the_losses(predictable):
    golden = golden_for(predictable)
    naive = offsets.Naive(predictable, "f32")
    states = naive.states(naive.inputs(golden.hidden, golden.cb0_embed, golden.codes))
    heads = [predictable.f32(f"lm_head.{g}.weight") for g in range(15)]
    task = offsets._Task(states, golden.codes, heads, 0)
    at = np.random.default_rng(0).normal(0, 0.3, 64).astype(np.float32)
    _, gradient = task.loss(at, slice(None))
    for axis in (0, 17, 63):
        step = np.zeros(64, np.float32)
        step[axis] = 0.05
        slope = (task.loss(at + step, slice(None))[0] - task.loss(at - step, slice(None))[0]) / 0.1
        assert gradient[axis] == pytest.approx(slope, rel=0.05, abs=2e-4)


def test_what_was_fitted_is_never_worse_on_held_out_frames(drifting):
    fitted = offsets.fit(drifting, make_golden(drifting, 24))
    assert fitted.offsets.shape == (3, 64)
    assert fitted.frames == (18, 6)
    assert (fitted.held.max(axis=1) >= fitted.held[:, 0]).all()
    assert fitted.held[:, 1:].max(axis=1).sum() > fitted.held[:, 0].sum(), "a drift is what a vector is for"


def test_it_says_which_was_kept_and_why(drifting):
    fitted = offsets.fit(drifting, make_golden(drifting, 24))
    for depth, vector in enumerate(fitted.offsets):
        told = fitted.kept_words(depth)
        assert told.startswith(offsets.CANDIDATES[fitted.kept[depth]])
        assert told.startswith("no vector") == (not vector.any())
    equal = offsets.Fit(fitted.offsets, np.array([[0.4, 0.4, 0.4], [0.3, 0.5, 0.5], [0.1, 0.2, 0.3]]), (18, 6))
    assert equal.kept == [0, 1, 2]


def test_the_command_keeps_it_where_the_decoder_finds_it(capsys, tmp_path, monkeypatch, predictable):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    assert offsets.load(predictable) is None
    assert run(app, ["drafter", "--model", NAME]) == GOOD
    out = capsys.readouterr().out
    assert "1 ahead:" in out
    assert "3 ahead:" in out
    assert out.count("; kept: ") == 3
    found = offsets.load(predictable)
    assert found is not None
    assert found.shape == (15, 3, 64)
    assert SpeculativeDecoder(predictable, 1, format="bf16")._plan[plan.OFFSET_DEPTHS] == 3


def test_a_file_has_its_vectors_beside_it(tmp_path, predictable):
    path = tmp_path / "cp.gguf"
    path.touch()
    model = Model(str(path), predictable.spec, predictable.tensors)
    assert offsets.path_beside(model) == tmp_path / "cp.gguf.drafter.npz"
    assert offsets.path_beside(Model(str(tmp_path), predictable.spec, predictable.tensors)).parent == tmp_path
    offsets.save(model, np.ones((2, 64), np.float32), offsets.path_beside(model))
    assert np.array_equal(offsets.load(model), np.ones((15, 2, 64)))


def test_vectors_of_other_weights_and_damaged_ones_are_refused(tmp_path, predictable):
    path = tmp_path / "x.npz"
    changed = with_tensors(predictable, model__norm__weight=predictable.f32("model.norm.weight") * 2)
    offsets.save(changed, np.ones((2, 64), np.float32), path)
    with pytest.raises(BadInputError, match="fit it again"):
        offsets.load(predictable, path)
    path.write_bytes(b"nothing")
    with pytest.raises(BadInputError, match="damaged"):
        offsets.load(predictable, path)


def test_what_cannot_be_fitted_is_one_line(capsys, predictable, tiny):
    golden = golden_for(predictable)
    with pytest.raises(GoldenError):
        offsets.fit(with_tensors(predictable, model__norm__weight=predictable.f32("model.norm.weight") * 2), golden)
    with pytest.raises(BadInputError, match="frames of 2 codes"):
        offsets.fit(tiny, golden_for(tiny))
    with pytest.raises(BadInputError, match="7 frames"):
        offsets.fit(predictable, make_golden(predictable, 7))
    assert run(app, ["drafter", "--model", "synthetic:tiny"]) == WRONG_USE
    assert capsys.readouterr().err.count("\n") == 1
