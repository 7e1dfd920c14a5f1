"""What the first sentences of a report say. All figures are made up (made_up_runs.py)."""

import pytest
from made_up_runs import OWN_TALKER, broken, cell, realistic, summary

from bench.records import Fidelity, Interval, ModelFacts, Ratio
from reports import verdict
from reports.verdict import judge


def test_exact_winner_in_real_time_with_own_talker():
    run = summary([cell("kv_bf16", 2, 66.0), cell("kv_f32", 2, 130.0)], talker=OWN_TALKER)
    sentence = verdict(run)
    assert sentence.startswith("Fastest exact: kv_bf16 on 2 threads, 66.0 ms a frame [65.3, 67.1]")
    assert "2.73× [2.68, 2.77] the speed of recompute_f16" in sentence
    assert "with this machine's talker step of 12.0 ms" in sentence
    assert "talker + CP take 78.0 ms of a frame's 80 ms: real time." in sentence
    assert judge(run).real_time == "yes"
    assert "another machine" not in sentence


def test_without_a_talker_the_other_machines_is_used_and_said_so():
    run = summary([cell("kv_bf16", 1, 66.0)])
    sentence = verdict(run)
    assert "kv_bf16 on 1 thread," in sentence
    assert (
        "another machine's talker step of 29.3 ms (Kazeia tablet, CPU 4 threads), as none was measured here" in sentence
    )
    assert sentence.endswith("talker + CP take 95.3 ms of a frame's 80 ms: not real time.")
    assert judge(run).real_time == "no"


def test_an_interval_that_holds_the_limit_is_too_close_to_call():
    run = summary([cell(cp_ms=Interval(p50=67.9, lo=66.0, hi=70.0, min=65.0))], talker=OWN_TALKER)
    assert judge(run).real_time == "close"
    assert "too close to call" in verdict(run)


def test_none_passing_is_said_plainly():
    run = summary([broken(), broken("kv_f16", gate="fail", reason="", gate_detail="code 3 differs")])
    assert verdict(run) == (
        "No exact variant passed its gate in this run, so there is no fastest exact variant (no cell passed)."
    )
    assert judge(run).real_time == "unknown"
    assert judge(run).second == ""
    assert "1 failed its gate and 1 crashed" in judge(run).notes[0]


def test_no_cells():
    assert verdict(summary([])) == "Nothing was measured: this run has no cells."


def test_a_faster_variant_that_is_not_exact_gets_its_own_sentence():
    quick = cell(
        "kv_q8_0", 2, 28.4, exact=False, arithmetic="q8_0", fidelity=Fidelity(teacher_forced=0.9812, free_running=0.437)
    )
    found = judge(summary([cell(), quick]))
    assert found.headline.startswith("Fastest exact: kv_bf16")
    assert "q8_0" not in found.headline
    assert found.second.startswith("Faster, but not exact: kv_q8_0 on 2 threads, 28.4 ms a frame")
    assert "fidelity to the f32 codes 98.1 % teacher-forced and 43.7 % free-running" in found.second


def test_a_slower_variant_that_is_not_exact_gets_none():
    assert judge(summary([cell(), cell("numpy_f32", 2, 170.0, exact=False, tier="codes")])).second == ""


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tier": "codes"}, "tier codes, not for equal bits"),
        ({"tier": "quality", "lossy_weights": 3}, "packing changed 3 weights"),
        ({"arithmetic": "q4_0"}, "arithmetic is q4_0"),
    ],
)
def test_why_a_fast_variant_is_not_exact(changes, why):
    found = judge(summary([cell("quick", 2, 30.0, exact=False, **changes)]))
    assert found.second.startswith("Fastest of those that passed, and not exact: quick")
    assert why in found.second
    assert "fidelity to the f32 codes was not measured" in found.second


def test_fidelity_that_is_not_whole_is_never_called_100_percent():
    quick = cell("quick", 2, 30.0, exact=False, tier="codes", fidelity=Fidelity(teacher_forced=0.99999))
    assert "> 99.9 % teacher-forced" in judge(summary([quick])).second


def test_synthetic_interrupted_and_broken_cells_are_notes():
    run = summary([cell(), broken()], model={"synthetic": True, "name": "synthetic:0.6b"}, run={"interrupted": True})
    notes = judge(run).notes
    assert notes[0] == "The weights are seeded (synthetic:0.6b): the times are real, and the codes are not speech."
    assert notes[1] == "The run was interrupted: 1 of 2 cells had been timed by then."
    assert "Of 2 cells, 1 crashed" in notes[2]


def test_doubts_about_the_winner_are_notes():
    notes = judge(summary([cell(oversubscribed=True, roof_suspect=True)])).notes
    assert any("more threads than the CPUs" in note for note in notes)
    assert any("suspect" in note for note in notes)


def test_the_baseline_as_winner_and_a_missing_baseline():
    itself = cell("recompute_f16", 2, 66.0, speedup_vs_baseline=Ratio(ratio=1, lo=1, hi=1))
    assert "the baseline recompute_f16 itself" in verdict(summary([itself]))
    assert "no ratio to the baseline recompute_f16" in verdict(summary([cell(speedup_vs_baseline=None)]))


def test_a_model_of_another_shape_is_not_judged_for_real_time():
    run = summary([cell(p50=0.2)], model={"spec": {"layers": 2, "hidden": 64, "groups": 3}}, talker=OWN_TALKER)
    assert "real time is not judged" in verdict(run)
    assert judge(run).real_time == "unknown"


def test_an_unknown_spec_is_taken_for_the_published_shape():
    run = summary([cell()], talker=OWN_TALKER).model_copy(
        update={"model": ModelFacts(name="m", spec={}, digest="", synthetic=False)}
    )
    assert judge(run).real_time == "yes"


def test_the_verdict_is_one_sentence():
    assert verdict(realistic()).count(". ") == 0
