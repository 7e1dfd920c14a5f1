"""Runs side by side: what compares, what does not, and the command. All figures are made up."""

from __future__ import annotations

import subprocess
import sys

import pytest
from made_up_pages import OTHER_MACHINE, beside_page, made_up_profile
from made_up_runs import broken, cell, realistic, records_of, summary, write_run
from test_report_html import HOSTILE, Document

from reports.beside import make_beside, read_beside
from reports.figures_page import figures_markdown, render_figures
from reports.html import render_html
from reports.markdown import render_markdown
from reports.page import make_page


def table(page, anchor):
    found = next(section.table for section in page.sections if section.anchor == anchor)
    return [dict(zip((heading.name for heading in found.headings), row, strict=True)) for row in found.rows]


def test_each_run_has_its_time_its_ratio_and_its_share_of_the_roof():
    rows = table(make_beside([("a", realistic()), ("b", summary([cell("kv_bf16", 4, 33.0)]))]), "figures")
    (row,) = [row for row in rows if row["variant"] == "kv_bf16"]
    assert row["A: ms a frame [95 %]"].startswith("66.0 [")
    assert row["B: ms a frame [95 %]"] == "33.0 [32.7, 33.5] × 4"
    assert row["B: speed vs recompute_f16"] == "5.45× [5.36, 5.55]"
    assert row["B: of roof"] == "97.0 %"


def test_a_variant_that_a_run_has_not_is_no_figure_there():
    rows = table(make_beside([("a", summary([cell("old")])), ("b", summary([cell("new"), broken("bad")]))]), "figures")
    assert {row["variant"]: (row["A: of roof"], row["B: of roof"]) for row in rows} == {
        "old": ("90.9 %", "–"),
        "new": ("–", "90.9 %"),
    }


def test_what_does_not_compare_is_said():
    notes = " ".join(beside_page().notes)
    assert "different machines: milliseconds do not compare" in notes
    assert "baselines differ (A recompute_f16, B recompute_f16, C kv_bf16)" in notes
    weights = realistic().model_copy(update={"model": realistic().model.model_copy(update={"digest": "e" * 16})})
    assert "different weights" in " ".join(make_beside([("a", realistic()), ("b", weights)]).notes)
    same = " ".join(make_beside([("a", realistic()), ("b", realistic())]).notes)
    assert "one machine" in same
    assert "differ" not in same


def test_a_page_is_sound_and_loads_nothing():
    text = render_figures(beside_page())
    document = Document(text)
    assert len(document.ids) == len(set(document.ids))
    assert set(document.references) <= set(document.ids)
    assert "#0102" not in text
    assert not {tag for tag, _ in document.tags} & {"link", "img", "iframe"}


def test_foreign_text_stays_text():
    run = summary([cell(HOSTILE)], machine={"cpu": {"model": HOSTILE}}, baseline=HOSTILE)
    page = make_beside([(HOSTILE, run), (HOSTILE, realistic())], HOSTILE)
    assert render_figures(page).lower().count("<script") == 1, "the page's own"
    assert "<script" not in figures_markdown(page).split("```")[0]


def test_many_runs_of_many_variants_stay_small():
    many = summary([cell(f"variant_{number}", 2, 30.0 + number) for number in range(60)])
    page = make_beside([(f"run-{number}", many) for number in range(26)])
    assert len(render_figures(page).encode()) < 2_000_000
    assert len(figures_markdown(page).encode()) < 2**20
    with pytest.raises(ValueError, match="27 runs"):
        read_beside([None] * 27)


def test_the_command_writes_both_files_of_copied_folders(tmp_path):
    first = write_run(tmp_path / "here", realistic())
    second = write_run(tmp_path / "copied", realistic().model_copy(update={"machine": OTHER_MACHINE}))
    command = [sys.executable, "-m", "bench", "report", str(first), str(second)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["side-by-side.html", "side-by-side.md"]
    assert "Imaginary 10000" in (tmp_path / "side-by-side.html").read_text(encoding="utf-8")
    again = subprocess.run([*command[:-1], str(first)], cwd=tmp_path, capture_output=True, text=True, timeout=120,
                           check=False)  # fmt: skip
    assert again.returncode == 1
    assert "the same run twice" in again.stderr


def test_a_report_has_the_profile_of_the_fastest_variant():
    page = make_page(realistic(), list(records_of(realistic())), None, made_up_profile())
    for text in (render_html(page), render_markdown(page)):
        assert "67.0 ms a frame in 15 passes" in text.replace("\N{NO-BREAK SPACE}", " ")
        assert "gate/up" in text


def test_without_a_profile_a_report_tells_how_to_have_one():
    page = make_page(realistic(), list(records_of(realistic())))
    for text in (render_html(page), render_markdown(page)):
        assert "--json profile.json" in text
