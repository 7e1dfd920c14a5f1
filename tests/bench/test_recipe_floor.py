"""What is recommended must keep a share of codes: measured, or the user's; and mixes only round as their formats do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))

from checkpoint_files import Folder
from small_models import projected_model, with_tensors

from bench.cli import app
from bench.quality.float_law import FloatLaw
from bench.quality.floor import asked_floor, floor_of, recommended
from bench.quality.intervals import of_mean
from bench.quality.naive_distance import naive_distance, recipe_distance
from bench.quality.recipe_search import Found
from bench.quality.teacher_forced import measure
from bench.quality.trials import Trials
from bench.records.quality import Floor
from bench.records.recipe import RecipeFound
from cplab.commandline import run
from cplab.decoder import Decoder
from cplab.export import planned
from cplab.golden import find_golden
from cplab.golden_making import make_golden
from cplab.naive import Naive
from cplab.recipe import parse
from cplab.sources import load_model

MIX = {"all": "q8_0", "down": "q4_0", "heads.0": "f16"}


@pytest.fixture(scope="module")
def trials():
    model = load_model("synthetic:tiny")
    return Trials(model, FloatLaw(model, find_golden(model), 1).of_golden(8), 1)


# -- the floor --------------------------------------------------------------------------------------------------------


def test_where_nobody_says_the_floor_is_what_the_naive_q8_0_keeps_at_least(trials):
    floor = floor_of(None, trials.model, trials.truth)
    chosen = Naive(trials.model, "q8_0").scored(trials.truth.hidden, trials.truth.cb0_embed, trials.truth.codes)
    same = chosen.argmax(axis=-1) == trials.truth.chosen
    assert floor.least == of_mean(same.mean(axis=1)).lo
    assert "naive Q8_0" in floor.source


def test_a_user_may_ask_for_another_or_for_none(trials):
    assert floor_of(87.5, trials.model, trials.truth) == Floor(least=0.875, source="--least-agreement")
    assert floor_of(0, trials.model, trials.truth) is asked_floor(0) is None


def test_where_the_naive_one_is_lost_itself_half_of_the_codes_is_the_least():
    tiny = load_model("synthetic:tiny")
    truth = FloatLaw(tiny, find_golden(tiny), 1).of_golden(2)
    other = with_tensors(tiny, model__norm__weight=-tiny.f32("model.norm.weight"))
    overflowing = with_tensors(tiny, model__norm__weight=np.full(tiny.spec.hidden, 3e38, np.float32))
    for lost in (other, overflowing):
        floor = floor_of(None, lost, truth)
        assert floor.least == 0.5
        assert "keeps 0.0 % itself" in floor.source


def trial(name, agreement, damage, non_finite=0):
    lost = SimpleNamespace(agreement=SimpleNamespace(value=agreement), non_finite=non_finite)
    return SimpleNamespace(formats={"all": name}, damage=damage, lost=lost)


COSTS = {"dear": 9.0, "wide": 6.0, "fits": 4.0, "least": 3.0}


def judged(least, *others, chosen):
    """What is recommended within 5, of a search that ended with ``chosen`` and tried the others on the way."""
    tried = SimpleNamespace(measured=lambda: [chosen, *others])
    costs = SimpleNamespace(of=lambda formats: COSTS[formats["all"]])
    floor = None if least is None else Floor(least=least, source="")
    return recommended(Found(chosen, ["a step"], []), tried, costs, 5.0, floor)


@pytest.mark.parametrize(("least", "kept"), [(None, True), (0.5, True), (0.6, True), (0.61, False)])
def test_what_keeps_less_than_the_floor_is_not_recommended(least, kept):
    found = judged(least, trial("wide", 0.5, 9.0), chosen=trial("fits", 0.6, 0.1))
    assert found.kept is kept
    assert found.chosen.formats == {"all": "fits"}
    assert found.nearest is None


def test_the_nearest_that_keeps_enough_is_the_cheapest():
    others = trial("dear", 1.0, 0.0), trial("wide", 0.95, 0.05), trial("least", 0.3, 1.0)
    found = judged(0.9, *others, chosen=trial("fits", 0.6, 0.1))
    assert not found.kept
    assert found.nearest.formats == {"all": "wide"}


def test_what_keeps_enough_within_the_budget_is_found_though_its_divergence_is_larger():
    found = judged(0.9, trial("least", 0.92, 0.2), trial("wide", 1.0, 0.0), chosen=trial("fits", 0.89, 0.1))
    assert found.kept
    assert found.chosen.formats == {"all": "least"}
    assert found.steps == []


def test_rows_that_are_not_finite_are_never_good_enough():
    found = judged(0.5, chosen=trial("fits", 0.9, float("inf"), non_finite=1))
    assert not found.kept


# -- the naive implementation of a mix --------------------------------------------------------------------------------


def test_a_recipe_only_rounds_as_its_formats_do(trials):
    found = recipe_distance(trials, trials.of(MIX))
    assert found.passed, found.detail
    assert 0.5 < found.ratio < 1.5


def test_so_it_does_on_a_model_with_a_projection():
    model = projected_model()
    own = Trials(model, FloatLaw(model, make_golden(model, 3), 1).of_golden(), 1)
    found = recipe_distance(own, own.of({**MIX, "projection": "q4_0"}))
    assert found.passed, found.detail


def test_matrices_in_fewer_bits_than_the_recipe_says_are_found(trials):
    naive = Naive(trials.model, parse("all q8_0").by_matrix(trials.model))
    assert naive_distance(trials.logits({"all": "q8_0"}), trials.truth, naive, "mix").passed
    assert not naive_distance(trials.logits({"all": "q8_0", "heads": "q4_0"}), trials.truth, naive, "mix").passed


def test_the_model_as_it_is_has_nothing_to_be_measured_by(trials):
    assert recipe_distance(trials, trials.of({})) is None


def test_a_file_of_mixed_formats_is_held_to_the_naive_one_of_its_own_mix(trials, tmp_path):
    folder = Folder(trials.model).write(tmp_path / "m")
    (part,) = planned(folder, tmp_path / "cp.gguf", recipe=parse("all q8_0\ndown q4_0\nheads.0 f16"))
    part.write()
    mixed = load_model(str(tmp_path / "cp.gguf"))
    truth = FloatLaw(mixed, make_golden(mixed, 4), 1).of_golden()
    naive = Naive(mixed, "stored")
    assert set(naive.formats.values()) == {"stored"}
    assert naive.activations["lm_head.0.weight"] == "f32"
    assert naive.activations["lm_head.1.weight"] == naive.activations["model.layers.0.mlp.down_proj.weight"] == "q8_0"
    for name in naive.formats:
        assert np.array_equal(naive.matrix(name), mixed.f32(name)), "what a file holds is not rounded again"
    logits = Trials(mixed, truth, 1).logits({})
    found = naive_distance(logits, truth, naive, "stored")
    assert found.passed, found.detail
    assert 0.5 < found.ratio < 1.5
    assert not naive_distance(logits + np.float32(3 * found.rmse), truth, naive, "stored").passed


# -- the command ------------------------------------------------------------------------------------------------------


def asked(tmp_path, *options):
    return run(
        app,
        ["recipe", "--model", "synthetic:tiny", "-t", "1", "--frames", "6", "--json", str(tmp_path / "found.json"),
         "-o", str(tmp_path / "mix.txt"), *options],
    )  # fmt: skip


def record(tmp_path):
    return RecipeFound.model_validate(json.loads((tmp_path / "found.json").read_text(encoding="utf-8")))


def test_a_budget_that_nothing_good_enough_is_within_gives_no_recipe(tmp_path, capsys):
    assert asked(tmp_path, "--formats", "q4_0", "--budget-mb", "0.28") == 2
    told = " ".join(capsys.readouterr().out.split())
    found = record(tmp_path)
    assert not found.recommended
    assert found.nearest is not None
    assert found.nearest_cost > found.budget
    assert found.nearest.lost.agreement.value >= found.floor.least > found.chosen.lost.agreement.value
    assert "no recommendation: nothing that was measured within 280,000 bytes keeps" in told
    assert f"The nearest that does costs {found.nearest_cost:,.0f} bytes: " in told
    assert not (tmp_path / "mix.txt").exists()


def test_a_user_who_asks_for_less_gets_it(tmp_path, capsys):
    assert asked(tmp_path, "--formats", "q4_0", "--budget-mb", "0.28", "--least-agreement", "50") == 0
    found = record(tmp_path)
    assert found.recommended
    assert found.floor == Floor(least=0.5, source="--least-agreement")
    assert found.naive.passed
    assert (tmp_path / "mix.txt").read_text(encoding="utf-8") in capsys.readouterr().out


def test_the_record_of_a_trial_is_that_of_its_own_logits(trials):
    trial, truth = trials.of(MIX), trials.truth
    assert measure(lambda *frames: trials.logits(MIX), truth) == trial.lost
    assert trial in trials.measured()
    assert isinstance(trials.decoder(MIX), Decoder)
