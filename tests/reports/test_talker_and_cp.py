"""Talker and code predictor together in both reports. All figures are made up."""

from __future__ import annotations

import re

import pytest
from made_up_runs import OWN_TALKER, broken, cell, interval, realistic, records_of, summary

from bench.records import Fidelity, WithoutTalker
from reports.html import render_html
from reports.markdown import render_markdown
from reports.page import make_page
from reports.step_bars import step_chart
from reports.talker_and_cp import steps, talker_lines, talker_sentences
from reports.verdict import judge


def measured(*cells, **changes):
    """A run with a talker of 12 ms."""
    return summary(list(cells) or [cell()], talker=OWN_TALKER, **changes)


def markdown(run):
    return render_markdown(make_page(run, list(records_of(run))))


def html(run):
    return render_html(make_page(run, list(records_of(run))))


def test_a_step_is_the_sum_of_both_and_its_bounds_are():
    step = steps(measured(cell(p50=66.0)))[0]
    assert step.both.p50 == pytest.approx(78)
    assert step.both.lo == pytest.approx(0.99 * 78)
    assert step.both.hi == pytest.approx(1.016 * 78)


def test_rtf_is_at_12_5_frames_a_second():
    step = steps(measured(cell(p50=66.0)))[0]
    assert step.rtf.p50 == pytest.approx(78 / 80)


def test_the_tablet_stands_beside_it_as_it_was_printed():
    *_, tablet = steps(measured())
    assert tablet.row == ("Kazeia tablet, CPU 4 threads (another machine)", "29.3", "267", "296", "3.61")


def test_a_faster_cell_that_is_not_exact_has_its_fidelity_beside_it():
    fast = cell("kv_q8_0", p50=28.0, arithmetic="q8_0", exact=False, fidelity=Fidelity(teacher_forced=0.98))
    labels = [step.label for step in steps(measured(cell(), fast))]
    assert labels[0] == "kv_bf16 on 2 threads, exact"
    assert labels[1] == "kv_q8_0 on 2 threads, not exact (fidelity 98.0 % teacher-forced)"


def test_without_a_talker_there_is_no_sum_and_no_chart_and_the_reason_is_told():
    run = summary([cell()], without_talker=WithoutTalker(status="skip", reason="llama-cpp-python is not installed"))
    assert steps(run)[0].row[1:] == ("–", "66.0 [65.3, 67.1]", "–", "–")
    assert step_chart(run) is None
    for page in (markdown(run), html(run)):
        assert "The talker was not measured: llama-cpp-python is not installed." in page
    assert talker_lines(run) == ["The talker was not measured: llama-cpp-python is not installed."]


@pytest.mark.parametrize(("status", "did"), [("crash", "crashed"), ("fail", "failed")])
def test_a_talker_that_went_wrong_is_a_note_at_the_top(status, did):
    run = summary([cell()], without_talker=WithoutTalker(status=status, reason="killed by SIGSEGV"))
    assert f"The talker {did}: killed by SIGSEGV." in judge(run).notes
    assert judge(summary([cell()])).notes == []


def test_the_verdict_takes_the_talker_that_was_measured():
    assert "this machine's talker step of 12.0 ms" in judge(measured()).headline
    assert "none was measured" not in judge(measured()).headline
    assert "another machine's talker step of 29.3 ms" in judge(summary([cell()])).headline


def test_a_model_of_another_shape_has_no_rtf_and_no_tablet():
    run = measured(model={"spec": {"hidden": 64, "layers": 2, "groups": 4}})
    assert [step.row[-1] for step in steps(run)] == ["–"]
    assert step_chart(run) is None
    assert "RTF" not in " ".join(talker_lines(run))


def test_a_run_without_cells_that_passed_shows_the_tablet_alone_and_no_bars():
    run = measured(broken())
    assert [step.another_machine for step in steps(run)] == [True]
    assert step_chart(run) is None
    assert "## Talker and code predictor" in markdown(run)


def test_bars_tell_their_figures_in_words_too():
    chart = step_chart(measured(cell(p50=66.0)))
    for drawn in (chart.wide, chart.narrow):
        told = re.search(r"<desc[^>]*>(.*?)</desc>", drawn)[1]
        assert "kv_bf16 on 2 threads, exact: 12.0 + 66.0 = 78.0 ms" in told
        assert "another machine): 29.3 + 267 = 296 ms" in told


def test_parts_are_as_long_as_their_times():
    """Widths of the drawn rectangles: talker to code predictor as 12 to 66, and 29.3 to 267."""
    drawn = step_chart(measured(cell(p50=66.0))).wide
    widths = []
    for path in re.findall(r'<g id="step-wide-patch_\d+">\s*<path d="([^"]+)"[^>]*fill: var\(--part-', drawn):
        xs = [float(x) for x in re.findall(r"[ML] (\S+) ", path)]
        widths.append(max(xs) - min(xs))
    assert len(widths) == 4
    assert widths[1] / widths[0] == pytest.approx(66 / 12, rel=1e-3)
    assert widths[3] / widths[2] == pytest.approx(267 / 29.3, rel=1e-3)
    assert widths[2] / widths[0] == pytest.approx(29.3 / 12, rel=1e-3)


def test_both_reports_have_the_same_rows():
    run = realistic().model_copy(update={"talker": OWN_TALKER})
    text, page = markdown(run), html(run)
    for step in steps(run):
        for entry in step.row:
            assert entry in text
            assert entry in page


def test_what_is_known_of_the_talker_is_told():
    talker = OWN_TALKER.model_copy(
        update={
            "name": "made-up:talker", "threads": 2, "threads_reason": "the fastest of two", "positions": 19,
            "rounds": 6, "steps": 60, "note": "settings of no engine", "disturbed": ["round 1: made up"],
        }
    )  # fmt: skip
    told = " ".join(talker_sentences(summary([cell()], talker=talker)))
    for part in ("made-up:talker", "on 2 threads (the fastest of two)", "6 rounds and 60 steps", "19 positions", "101"):
        assert part in told
    assert "settings of no engine." in told
    assert "disturbed: round 1: made up" in told


def test_hostile_text_stays_text():
    talker = OWN_TALKER.model_copy(update={"name": "<script>alert(1)</script>", "note": "a | b\n# c"})
    run = measured().model_copy(update={"talker": talker})
    assert "<script>alert" not in html(run)
    assert "<script>" not in markdown(run)
    assert "a \\| b # c" in markdown(run)


def test_intervals_that_are_wide_are_drawn():
    run = summary([cell(cp_ms=interval(66.0, 0.3))], talker=OWN_TALKER)
    assert step_chart(run) is not None
