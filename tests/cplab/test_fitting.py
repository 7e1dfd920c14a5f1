"""Q4_0 fitted to what a matrix reads: never worse by its own measure, better on models, and the same layout."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoint_files import Folder
from hypothesis import given, settings
from hypothesis import strategies as st
from small_models import inputs, small_model

from cplab.__main__ import app
from cplab.commandline import run
from cplab.errors import BadInputError, GoldenError, UnpackableError
from cplab.export import planned
from cplab.formats import FORMATS, fitting
from cplab.gating import gate_cell
from cplab.golden import committed_goldens
from cplab.input_energy import input_energies
from cplab.model import is_streamed
from cplab.naive import Naive
from cplab.sources import load_model
from cplab.variant import get_variant

Q4 = FORMATS["q4_0"]


def squares(weights, packed, energy):
    """Weighted square error of each block of 32."""
    off = np.square(weights.astype(np.float64) - Q4.unpack(packed)) * energy
    return off.reshape(*packed.shape, 32).sum(-1)


def some_weights(seed, rows=8, n=128, tails=False):
    draw = np.random.default_rng(seed)
    values = draw.standard_t(2, (rows, n)) if tails else draw.standard_normal((rows, n))
    return (0.02 * values).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    tails=st.booleans(),
    scale=st.sampled_from([1.0, 2.0**-20, 2.0**-140, 2.0**12]),
    spread=st.sampled_from([0.0, 1.0, 4.0]),
)
def test_no_block_is_worse_than_the_gguf_packages(seed, tails, scale, spread):
    weights = some_weights(seed, tails=tails) * np.float32(scale)
    energy = np.exp(spread * np.random.default_rng(seed + 1).standard_normal(128))
    counted = energy + 0.01 * energy.mean()
    ours, plain = fitting.pack(weights, energy), Q4.pack(weights)
    assert ours.dtype == plain.dtype
    assert ours.shape == plain.shape
    assert (squares(weights, ours, counted) <= squares(weights, plain, counted)).all()
    assert np.isfinite(ours["d"]).all()


def test_it_is_much_better_where_inputs_differ():
    weights, energy = some_weights(1, 64, 256), np.exp(2 * np.random.default_rng(2).standard_normal(256))
    ours, plain = (squares(weights, p, energy).sum() for p in (fitting.pack(weights, energy), Q4.pack(weights)))
    assert ours < 0.75 * plain


def test_it_is_near_the_best_that_any_scale_gives():
    """Every scale of a fine grid, with the nearest integers: what the search may miss is little."""
    weights, energy = some_weights(3, 4, 32), np.exp(np.random.default_rng(4).standard_normal(32))
    counted = energy + 0.01 * energy.mean()
    found = squares(weights, fitting.pack(weights, energy), counted)[:, 0]
    for row, error in zip(weights.astype(np.float64), found, strict=True):
        largest = np.abs(row).max()
        d = np.concatenate([sign * largest / np.linspace(4, 12, 4000) for sign in (1, -1)])[:, None]
        q = np.clip(np.floor(row / d + 0.5), -8, 7)
        best = (counted * np.square(row - d * q)).sum(1).min()
        assert error <= 1.15 * best


def test_numbers_that_q4_0_holds_are_kept_to_the_bit():
    held = Q4.unpack(Q4.pack(some_weights(5)))
    back = Q4.unpack(fitting.pack(held, np.ones(128)))
    np.testing.assert_allclose(back, held, rtol=0, atol=1e-3 * np.abs(held).max())
    assert (squares(held, fitting.pack(held, np.ones(128)), 1.01) <= squares(held, Q4.pack(held), 1.01)).all()


def test_zeros_stay_zeros_and_no_energy_counts_all_alike():
    weights = some_weights(6)
    weights[2] = 0
    packed = fitting.pack(weights, np.zeros(128))
    assert not Q4.unpack(packed)[2].any()
    np.testing.assert_array_equal(packed, fitting.pack(weights, np.full(128, 3.0)))


def test_what_q4_0_cannot_hold_is_refused_as_ever():
    weights = some_weights(7)
    weights[1, 40] = 1e9
    with pytest.raises(UnpackableError, match=r"the weight 1e\+09 at \[1, 40\]"):
        fitting.pack(weights, np.ones(128))


@pytest.mark.parametrize("energy", [np.ones(64), np.full(128, np.nan), np.full(128, -1.0)])
def test_energies_that_are_none_are_refused(energy):
    with pytest.raises(BadInputError, match="energies"):
        fitting.pack(some_weights(8), energy)


# -- what matrices read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_every_matrix_has_the_mean_squares_of_its_inputs(name):
    model = small_model(name)
    energies = input_energies(model)
    assert energies.keys() == set(filter(is_streamed, model.tensors))
    for matrix, energy in energies.items():
        assert energy.shape == model.tensors[matrix].shape[1:]
        assert (energy >= 0).all()
        assert energy.sum() > 0
    at = "model.layers.0.self_attn."
    np.testing.assert_array_equal(energies[f"{at}q_proj.weight"], energies[f"{at}v_proj.weight"])
    if not model.spec.projected:  # what a norm makes has a mean square of 1, times its weights
        weight = model.f32("model.layers.0.input_layernorm.weight")
        assert np.mean(energies[f"{at}q_proj.weight"] / np.square(weight)) == pytest.approx(1, abs=0.05)


def test_a_goldens_frames_are_taken_where_it_fits(tiny, tmp_path):
    path = next(p for p in committed_goldens() if p.stem == "synthetic-tiny")
    seeded, given = input_energies(tiny), input_energies(tiny, str(path))
    name = "lm_head.0.weight"
    assert not np.array_equal(seeded[name], given[name])
    np.testing.assert_allclose(seeded[name].mean(), given[name].mean(), rtol=0.1)
    with pytest.raises(BadInputError, match="hidden states"):
        input_energies(small_model("projected"), str(path))
    with pytest.raises(GoldenError):
        input_energies(tiny, str(tmp_path / "none.npz"))


# -- export -----------------------------------------------------------------------------------------------------------


def distance(model, original):
    """Root mean square of logits from the original's, weights alone: activations stay float32."""
    hidden, cb0 = inputs(original, 8)
    codes = np.random.default_rng(9).integers(0, original.spec.vocab, (8, original.spec.passes)).astype(np.int32)
    ours, theirs = (Naive(m, "f32").scored(hidden, cb0, codes) for m in (model, original))
    return np.sqrt(np.mean(np.square(ours - theirs, dtype=np.float64)))


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_a_fitted_export_is_nearer_to_the_checkpoint(tmp_path, name):
    original = small_model(name)
    folder = Folder(original).write(tmp_path / "m")
    found = {}
    for fit in (None, "seeded"):
        (part,) = planned(folder, tmp_path / "cp.gguf", matrices="q4_0", fit=fit)
        part.write()
        loaded = load_model(str(tmp_path / "cp.gguf"))
        assert {t.format.name for n, t in loaded.tensors.items() if is_streamed(n)} == {"q4_0"}
        found[fit] = distance(loaded, original), (tmp_path / "cp.gguf").stat().st_size
    assert found["seeded"][0] < 0.95 * found[None][0]
    assert found["seeded"][1] == found[None][1]


def test_the_gate_takes_fitted_blocks_as_they_are_stored(tmp_path, tiny, monkeypatch):
    folder = Folder(tiny).write(tmp_path / "m")
    out = tmp_path / "cp.gguf"
    assert run(app, ["export", str(folder), "--format", "q4_0", "--fit", "seeded", "-o", str(out)]) == 0
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path / "cache"))
    cell = gate_cell(get_variant("kv_q4_0"), load_model(str(out)), 1, frames=2)
    assert cell.report.passed, cell.report.detail()
    assert cell.lossy_weights == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["-o", "cp.gguf", "--format", "q8_0", "--fit", "seeded"], "no matrix is to be in q4_0"),
        (["--talker", "t.gguf", "--fit", "seeded"], "--recipe and --fit are of the code predictor's file"),
        (["-o", "cp.gguf", "--format", "q4_0", "--fit", "none.npz"], "none.npz"),
    ],
)
def test_a_fit_of_nothing_is_refused(tmp_path, tiny, monkeypatch, capsys, more, told):
    folder = Folder(tiny).write(tmp_path / "m")
    monkeypatch.chdir(tmp_path)
    assert run(app, ["export", str(folder), *more]) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "cp.gguf").exists()
