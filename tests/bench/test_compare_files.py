"""Two runs beside each other: by their own baselines, by their times where there is no other way, or not at all."""

from __future__ import annotations

import pytest
from made_up_runs_on_disk import MACHINE, finished, records

from bench.compare_files import compare_files
from bench.compare_show import exit_code, headline, share_of, write_markdown
from bench.compared import SLOWER, UNDECIDED
from bench.errors import ComparisonError
from bench.records import Summary
from cplab.commandline import GOOD
from cplab.errors import CplabError

NAMES = ("recompute_f16", "kv_bf16", "kv_f16")


@pytest.fixture
def run(tmp_path):
    def make(name, seed, machine=None, names=NAMES, rounds=12, changes=None, **factors):
        made = records(names, rounds=rounds, seed=seed, factors=factors)
        return finished(tmp_path / "runs" / name, made, machine, **(changes or {}))

    return make


def verdicts(found):
    return {cell.name: cell.found.verdict for cell in found.cells if cell.found}


def test_the_baseline_cancels_what_the_machine_did_between_two_runs(run):
    """All of B took 30 % longer, and one cell 8 % more."""
    slow_day = dict.fromkeys(NAMES, 1.3)
    a, b = run("a", 1), run("b", 2, **slow_day | {"kv_bf16": 1.3 * 1.08})
    found = compare_files(a, b, 0.02)
    assert verdicts(found) == {"kv_bf16 x 2": "slower", "kv_f16 x 2": "same"}
    (slower,) = [cell.found for cell in found.cells if cell.name == "kv_bf16 x 2"]
    assert slower.ratio.lo < 1.08 < slower.ratio.hi
    assert "baseline of its own run" in slower.note
    assert exit_code(found) == SLOWER
    assert exit_code(compare_files(b, a, 0.02)) == GOOD  # the other way round it is faster
    assert any(note.startswith("baseline recompute_f16 x 2") for note in found.notes)


def test_the_same_run_again_is_good(run):
    found = compare_files(run("a", 1), run("b", 2), 0.05)
    assert set(verdicts(found).values()) == {"same"}
    assert exit_code(found) == GOOD


def test_without_a_baseline_of_the_same_sources_times_are_compared_and_that_is_said(run):
    a, b = run("a", 1, names=("kv_bf16",)), run("b", 2, names=("kv_bf16",), kv_bf16=2.0)
    found = compare_files(a, b, 0.02)
    assert verdicts(found) == {"kv_bf16 x 2": "slower"}
    assert "not interleaved" in found.cells[0].found.note


def test_few_rounds_decide_nothing(run):
    found = compare_files(run("a", 1, rounds=5), run("b", 2, kv_bf16=1.5), 0.02)
    assert set(verdicts(found).values()) == {"undecided"}
    assert exit_code(found) == UNDECIDED


def test_of_two_machines_nothing_is_judged(run):
    other = MACHINE | {"cpu": MACHINE["cpu"] | {"model": "Imaginary 10000"}}
    found = compare_files(run("a", 1), run("b", 2, other, kv_bf16=0.5), 0.02)
    assert verdicts(found) == {}
    assert exit_code(found) == UNDECIDED
    assert found.unit.startswith("speed over its own run's")
    figures = {cell.name: (cell.a.ratio, cell.b.ratio) for cell in found.cells}
    assert figures["kv_bf16 x 2"] == (pytest.approx(5, rel=0.05), pytest.approx(10, rel=0.05))
    assert "different machines" in found.notes[0]


def test_machines_that_are_not_told_count_as_different(run):
    assert verdicts(compare_files(run("a", 1, {"cpu": {}}), run("b", 2, {"cpu": {}}), 0.02)) == {}


def test_two_models_are_nothing_to_compare(run):
    prepared = {"spec": {}, "digest": "f" * 16, "synthetic": True, "golden_frames": 2, "golden_reference": "oracle"}
    found = compare_files(run("a", 1), run("m", 2, changes={"prepared": prepared}), 0.02)
    assert "two models" in found.notes[0]
    assert (found.cells, exit_code(found), headline(found)) == ([], UNDECIDED, "Nothing to compare.")


def test_runs_without_a_common_cell_are_nothing_to_compare(run):
    found = compare_files(run("a", 1, names=("kv_bf16",)), run("n", 3, names=("kv_f16",)), 0.02)
    assert "no timed cell in common" in found.notes[0]
    assert (found.cells, exit_code(found), headline(found)) == ([], UNDECIDED, "Nothing to compare.")


def test_a_run_can_be_its_folder_its_summary_or_its_records(run, tmp_path):
    a, b = run("a", 1), run("b", 2, kv_bf16=1.2)
    whole = verdicts(compare_files(a, b, 0.02))
    assert whole["kv_bf16 x 2"] == "slower"
    assert verdicts(compare_files(a / "summary.json", b / "summary.json", 0.02)) == whole
    assert verdicts(compare_files(a / "records.jsonl", b / "records.jsonl", 0.02)) == whole
    (b / "summary.json").unlink()  # as a killed run leaves it
    assert verdicts(compare_files(a, b, 0.02)) == whole


def test_what_is_no_run_is_one_line(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for wrong in ("empty", "nowhere.json"):
        with pytest.raises(ComparisonError) as caught:
            compare_files(run("a", 1), tmp_path / wrong, 0.02)
        assert "\n" not in str(caught.value)


def test_the_noise_of_a_run_raises_the_limit(run, tmp_path):
    a, b = run("a", 1), run("b", 2, kv_bf16=1.08)
    summary = Summary.model_validate_json((a / "summary.json").read_text()).model_dump(by_alias=True)
    ratio = {"ratio": 1.0, "lo": 0.9, "hi": 1.2}
    noisy = {"variant": "kv_bf16", "threads": 2, "rounds": 12, "ratio": ratio, "noise": 0.2}
    (a / "summary.json").write_text(
        Summary.model_validate(summary | {"repeatability": noisy}).model_dump_json(by_alias=True)
    )
    found = compare_files(a, b, 0.02)
    assert {cell.found.limit for cell in found.cells} == {0.2}
    assert verdicts(found)["kv_bf16 x 2"] == "same"


def test_markdown_is_a_table_and_keeps_odd_names_in_their_cells(run, tmp_path):
    a, b = run("a|<b>`", 1), run("b", 2, kv_bf16=1.2)
    target = tmp_path / "pr.md"
    write_markdown(compare_files(a, b, 0.02), target)
    lines = target.read_text().splitlines()
    assert lines[0].startswith("### ")
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 2
    assert {line.count("|") for line in table} == {8}
    assert any("| kv_bf16 x 2 |" in line and "slower by" in line for line in table)
    assert "<b>" not in target.read_text()


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("2 %", 0.02), ("0.03", 0.03), ("0", 0)])
def test_a_threshold_is_a_share(text, share):
    assert share_of(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "%", "two", "-1%", "100%", "nan", "2%%", "2% of it", "inf"])
def test_a_threshold_that_is_none_is_refused(text):
    with pytest.raises(CplabError, match="--threshold"):
        share_of(text)
