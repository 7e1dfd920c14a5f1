"""Sensitivities and recipes: figures of each are those of the exported file, and a search takes what costs least."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))

from checkpoint_files import Folder
from small_models import small_model

from bench.cli import app
from bench.quality.costs import Costs, measured_costs
from bench.quality.float_law import FloatLaw
from bench.quality.recipe_search import Search
from bench.quality.sensitivity import sensitivity, units_at
from bench.quality.teacher_forced import measure
from bench.quality.trials import Trials
from bench.records.recipe import RecipeFound, Sensitivity
from bench.records.summarised import ModelFacts
from cplab.commandline import run
from cplab.decoder import Decoder
from cplab.errors import BadInputError
from cplab.export import planned
from cplab.golden import find_golden
from cplab.golden_making import make_golden
from cplab.recipe import parse, read_recipe
from cplab.sources import load_model

RECIPES = ({}, {"all": "q4_0"}, {"all": "q8_0", "heads": "q4_0", "down.1": "f16"}, {"gate_up": "q4_0", "qkv.0": "q8_0"})


@pytest.fixture(scope="module")
def trials():
    model = load_model("synthetic:tiny")
    return Trials(model, FloatLaw(model, find_golden(model), 1).of_golden(8), 1)


# -- trials and costs -------------------------------------------------------------------------------------------------


def test_the_model_as_it_is_loses_nothing(trials):
    base = trials.of({})
    assert base.damage == 0
    assert base.lost.agreement.value == 1
    assert base.lost.rmse.value == 0


def test_a_trials_figures_are_those_of_the_exported_file(trials, tmp_path):
    formats = RECIPES[2]
    folder = Folder(trials.model).write(tmp_path / "m")
    (part,) = planned(folder, tmp_path / "cp.gguf", recipe=parse("all q8_0\nheads q4_0\ndown.1 f16"))
    part.write()
    exported = Decoder(load_model(str(tmp_path / "cp.gguf")), 1, format="stored")
    trial = trials.of(formats)
    assert trial.lost == measure(exported, trials.truth)
    assert trial.bytes_per_frame == exported.bytes_per_frame
    assert 0 < trial.damage < trials.of({"all": "q4_0"}).damage


def test_what_was_tried_is_not_tried_again(trials, monkeypatch):
    before = trials.of({"o": "q8_0"})
    monkeypatch.setattr(trials, "decoder", lambda formats: pytest.fail("built again"))
    assert trials.of({"o": "q8_0"}) is before


@pytest.mark.parametrize("name", ["tiny", "projected"])
def test_costs_in_bytes_are_what_a_frame_streams(name):
    model = small_model(name)
    golden = find_golden(model) or make_golden(model, 2)
    trials = Trials(model, FloatLaw(model, golden, 1).of_golden(2), 1)
    costs = Costs(trials)
    for formats in RECIPES:
        assert costs.of(formats) == trials.decoder(formats).bytes_per_frame


def test_costs_in_milliseconds_are_the_measured_ones_of_one_format_throughout(trials):
    costs = Costs(trials, {"": 8.0, "q8_0": 5.0, "q4_0": 3.0})
    assert costs.unit == "ms"
    assert costs.of({}) == pytest.approx(8)
    assert costs.of({"all": "q8_0"}) == pytest.approx(5)
    assert costs.of({"all": "q4_0"}) == pytest.approx(3)
    assert 3 < costs.of({"all": "q4_0", "heads": "q8_0"}) < 5


def test_times_are_taken_of_real_frames(trials):
    costs = measured_costs(trials, ["q8_0", "q4_0"])
    assert all(0 < costs.of({"all": kind}) < 1000 for kind in ("q8_0", "q4_0"))


def test_a_logit_that_is_not_finite_is_infinite_damage(trials, monkeypatch):
    from cplab.errors import NonFiniteLogitsError

    def fails(self, hidden, cb0_embed, **options):
        raise NonFiniteLogitsError(0, 1)

    monkeypatch.setattr(Decoder, "predict", fails)
    trial = Trials(trials.model, trials.truth, 1).of({"all": "q8_0"})
    assert trial.damage == float("inf")
    assert trial.lost.non_finite == trial.lost.rows


# -- sensitivity ------------------------------------------------------------------------------------------------------


def test_each_class_is_quantised_alone_and_then_all(trials):
    about = ModelFacts(name="tiny", spec={}, digest="", synthetic=True)
    found = sensitivity(trials, ["q8_0", "q4_0"], "class", about, "")
    classes = ["qkv", "o", "gate_up", "down", "heads", "all"]
    assert [trial.formats for trial in found.trials] == [{c: k} for c in classes for k in ("q8_0", "q4_0")]
    by = {tuple(*trial.formats.items()): trial for trial in found.trials}
    for one in classes:
        assert found.base.damage < by[one, "q8_0"].damage < by[one, "q4_0"].damage
        assert found.base.bytes_per_frame > by[one, "q8_0"].bytes_per_frame
    assert by["all", "q4_0"].damage > max(by[one, "q4_0"].damage for one in classes[:-1])


def test_every_matrix_can_be_tried_alone(trials):
    assert units_at(trials, "class") == ["qkv", "o", "gate_up", "down", "heads"]
    layers = [f"{of}.{layer}" for layer in (0, 1) for of in ("qkv", "o", "gate_up", "down")]
    assert units_at(trials, "matrix") == [*layers, "heads.0", "heads.1"]


# -- the search -------------------------------------------------------------------------------------------------------


class MadeUp:
    """Trials and costs of units whose damages are known: a sum, and what two of them do together."""

    def __init__(self, damages, together=None, uniform=None, costs=None):
        self.damages, self.together, self.uniform = damages, together or {}, uniform or {}
        self.costs = costs or {"": 10, "wide": 6, "narrow": 3}
        self.unit, self.tried = "bytes", []

    def trials(self):
        return SimpleNamespace(of=self._trial)

    def of(self, formats):
        kind = formats.get("all")
        return sum(self.costs[formats.get(unit, kind or "")] for unit in self.damages)

    def _trial(self, formats):
        self.tried.append(dict(formats))
        damage = sum(self.damages[unit][kind] for unit, kind in formats.items() if unit != "all")
        damage += sum(extra for pair, extra in self.together.items() if set(pair) <= set(formats))
        return SimpleNamespace(formats=dict(formats), damage=self.uniform.get(formats.get("all"), damage or 0.0))

    def search(self):
        bad = {"wide": 100.0, "narrow": 100.0}
        self.uniform = bad | self.uniform
        return Search(self.trials(), self, list(self.damages), ["wide", "narrow"])


def test_what_loses_least_for_what_it_saves_goes_first():
    made = MadeUp({"a": {"wide": 1, "narrow": 9}, "b": {"wide": 2, "narrow": 3}, "c": {"wide": 8, "narrow": 9}})
    found = made.search().within(19)
    # a in wide: 0.25 for each saved; b in narrow: 0.43; then 6 + 3 + 10 are within 19.
    assert [(s.unit, s.format) for s in found.steps] == [("a", "wide"), ("b", "narrow")]
    assert found.chosen.formats == {"a": "wide", "b": "narrow"}


def test_what_two_do_together_is_measured_before_the_second_is_taken():
    made = MadeUp(
        {"a": {"wide": 1, "narrow": 50}, "b": {"wide": 1.1, "narrow": 50}, "c": {"wide": 2, "narrow": 50}},
        together={("a", "b"): 40},
    )
    found = made.search().within(22)
    assert found.chosen.formats == {"a": "wide", "c": "wide"}


def test_room_that_is_left_is_given_back():
    # b alone suffices in the end, but a was cheaper by what it saves.
    made = MadeUp({"a": {"wide": 1, "narrow": 90}, "b": {"wide": 90, "narrow": 5}})
    found = made.search().within(14)
    assert [(s.unit, s.format, s.gave_back) for s in found.steps] == [
        ("a", "wide", False),
        ("b", "narrow", False),
        ("a", "", True),
    ]
    assert found.chosen.formats == {"b": "narrow"}
    assert made.of(found.chosen.formats) <= 14


def test_one_format_throughout_is_taken_where_it_loses_less():
    made = MadeUp({"a": {"wide": 5, "narrow": 90}, "b": {"wide": 5, "narrow": 90}}, uniform={"wide": 0.5})
    found = made.search().within(12)
    assert found.chosen.formats == {"all": "wide"}
    assert found.steps == []


def test_a_model_within_the_budget_stays_as_it_is():
    found = MadeUp({"a": {"wide": 5, "narrow": 9}}).search().within(10)
    assert (found.chosen.formats, found.steps) == ({}, [])


def test_a_budget_that_nothing_is_within_is_told():
    with pytest.raises(BadInputError, match=r"within 5 bytes: the narrowest takes 6"):
        MadeUp({"a": {"wide": 1, "narrow": 2}, "b": {"wide": 1, "narrow": 2}}).search().within(5)


def test_what_overflows_is_taken_last():
    made = MadeUp({"a": {"wide": float("inf"), "narrow": float("inf")}, "b": {"wide": 70, "narrow": 80}})
    assert made.search().within(13).chosen.formats == {"b": "narrow"}


def test_a_real_search_is_within_its_budget_and_beats_what_fits_throughout(trials):
    budget = (trials.of({"all": "q8_0"}).bytes_per_frame + trials.of({}).bytes_per_frame) / 2
    found = Search(trials, Costs(trials), units_at(trials, "matrix"), ["q8_0", "q4_0"]).within(budget)
    assert trials.decoder(found.chosen.formats).bytes_per_frame <= budget
    assert 0 < found.chosen.damage < min(one.damage for one in found.uniform)
    assert found.steps


# -- the commands -----------------------------------------------------------------------------------------------------


def test_quality_sensitivity_writes_what_it_prints(tmp_path, capsys):
    asked = [
        "quality",
        "--sensitivity",
        "--model",
        "synthetic:tiny",
        "-t",
        "1",
        "--frames",
        "4",
        "--out",
        str(tmp_path),
    ]
    assert run(app, asked) == 0
    (file,) = tmp_path.rglob("sensitivity.json")
    found = Sensitivity.model_validate_json(file.read_text())
    assert (found.frames, len(found.trials)) == (4, 12)
    assert found.warning in " ".join(capsys.readouterr().out.split())
    assert json.loads(file.read_text())["schema"] == "cplab.sensitivity/1"


def test_a_recipe_is_found_written_and_exported(tmp_path, trials):
    text, record = tmp_path / "mix.txt", tmp_path / "found.json"
    asked = ["recipe", "--model", "synthetic:tiny", "-t", "1", "--budget-mb", "0.45", "--frames", "4"]
    assert run(app, [*asked, "-o", str(text), "--json", str(record)]) == 0
    found = RecipeFound.model_validate_json(record.read_text())
    assert found.cost == found.chosen.bytes_per_frame <= found.budget == 450_000
    assert read_recipe(text).formats == found.chosen.formats
    (part,) = planned(Folder(trials.model).write(tmp_path / "m"), tmp_path / "cp.gguf", recipe=read_recipe(text))
    part.write()
    exported = Decoder(load_model(str(tmp_path / "cp.gguf")), 1, format="stored")
    assert exported.bytes_per_frame == found.chosen.bytes_per_frame


def test_a_budget_in_milliseconds_is_held_against_a_measured_frame(tmp_path):
    record = tmp_path / "found.json"
    asked = ["recipe", "--model", "synthetic:tiny", "-t", "1", "--budget-ms", "1000", "--frames", "4"]
    assert run(app, [*asked, "--json", str(record)]) == 0
    found = RecipeFound.model_validate_json(record.read_text())
    assert (found.cost_in, found.chosen.formats, found.threads) == ("ms", {}, 1)
    assert 0 < found.measured_ms < 1000


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ([], "one budget is wanted"),
        (["--budget-ms", "5", "--budget-mb", "5"], "one budget is wanted"),
        (["--budget-ms", "nan"], "Invalid value for '--budget-ms'"),
        (["--budget-mb", "inf"], "'--budget-mb': inf is no finite number"),
        (["--budget-mb", "-1"], "Invalid value for '--budget-mb'"),
        (["--budget-mb", "1", "--least-agreement", "nan"], "Invalid value for '--least-agreement'"),
        (["--budget-mb", "0.01"], "no recipe of q8_0, q4_0 is within"),
        (["--budget-mb", "1", "--formats", "q9"], "no weight format 'q9'"),
        (["--budget-mb", "1", "--formats", ","], "names of formats are wanted"),
        (["--budget-mb", "1", "--hidden", "h.npy"], "--hidden goes with --codes"),
    ],
)
def test_what_cannot_be_done_is_one_line(asked, told, capsys):
    assert run(app, ["recipe", "--model", "synthetic:tiny", "-t", "1", "--frames", "2", *asked]) == 1
    told_of = capsys.readouterr().err
    assert told in told_of
    assert told_of.count("\n") == 1
