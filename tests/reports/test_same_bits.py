"""Bytes a frame, and the same bits: what stands there, and what does not. All figures are made up."""

from __future__ import annotations

import re

import pytest
from made_up_runs import cell, records_of, summary
from made_up_speculation import CPU, compared, curve, curves, drafted, exact_records, exact_run

from bench.records import Speculation
from reports.html import render_html
from reports.markdown import render_markdown
from reports.page import make_page
from reports.same_bits import TITLE, same_bits


def section(run=None, speculation=None):
    run = run or exact_run()
    return same_bits(run, exact_records(run), speculation)


def rows_of(table):
    return {row[0]: dict(zip((heading.name for heading in table.headings), row, strict=True)) for row in table.rows}


def test_exact_variants_that_run_no_token_twice_stand_side_by_side():
    table = section().table
    assert list(rows_of(table)) == [
        "kv_f32 × 2", "kv_bf16 × 2", "kv_f16 × 2", "kv_bf12 × 2", "spec_bf16 × 2", "spec_bf12 × 2", "kv_bf12 × 1",
    ]  # fmt: skip
    packed = rows_of(table)["kv_bf12 × 2"]
    assert packed["GB a frame"] == "1.83"
    assert packed["speed over kv_f32"].startswith("2.59×")
    assert packed["speed over kv_bf16"] == "1.31× [1.28, 1.34]"
    assert rows_of(table)["spec_bf16 × 2"]["passes a frame"] == "6.2"


def test_a_verdict_that_is_none_is_told_with_the_speed():
    assert rows_of(section().table)["kv_f16 × 2"]["speed over kv_bf16"] == "0.994× [0.974, 1.01], undecided"


def test_only_what_the_run_itself_compared_is_told():
    """Nothing is divided here: medians of other rounds, or of other thread counts, are no comparison."""
    table = rows_of(section().table)
    assert table["kv_bf12 × 1"]["speed over kv_bf16"] == "–"
    older = section(exact_run(comparisons=[]))
    assert not any(heading.name.startswith("speed") for heading in older.table.headings)


def test_the_headline_names_the_fastest_and_what_it_reads_of_the_others_bytes():
    found = section().headline
    assert found.startswith("Fastest here: spec_bf12 on 2 threads, 36.0 ms a frame; 18.8 % of the bytes of kv_f32")
    assert "37.6 % of the bytes of kv_bf16, at a speed of 1.83×" in found


def read_at(gbps):
    """The run with cells whose own weights were read so fast; what is small enough for a cache was read faster."""
    run = exact_run()

    def roof_ms(one):
        faster = 2.5 if one.format == "q8_0" else 0.5 * one.threads
        return None if gbps is None else one.bytes_per_frame / (gbps * faster) / 1e6

    return run.model_copy(update={"cells": [one.model_copy(update={"roof_ms": roof_ms(one)}) for one in run.cells]})


def test_the_line_is_of_the_charts_own_team():
    found = section(read_at(39.0))
    assert "39.0 GB/s" in found.caption
    assert "the roof, 39.0 GB/s" in found.chart.wide
    without = section(read_at(None))
    assert "no roof to draw" in without.caption
    assert "GB/s" not in without.chart.wide


@pytest.mark.parametrize(
    "cells",
    [
        [cell("kv_bf16"), cell("kv_f16", 2, 67.0)],
        [cell("kv_f32", 2, 131.0, bytes_per_frame=4_844_000_000), cell("kv_bf16", 4)],
        [cell("kv_f32", 2, 131.0, exact=False, tier="codes", bytes_per_frame=4_844_000_000), cell("kv_bf16")],
        [cell("kv_bf16", bytes_per_frame=None), cell("kv_f32", 2, 131.0)],
    ],
)
def test_without_two_exact_ones_that_differ_in_bytes_there_is_no_section(cells):
    run = summary(cells)
    page = make_page(run, list(records_of(run)))
    assert page.same_bits is None
    assert TITLE not in render_html(page)
    assert TITLE not in render_markdown(page)


def test_reasons_are_of_what_the_run_has():
    why = " ".join(section().why)
    assert "F32, BF16 and F16" in why
    assert "12.07 bits for 16" in why
    assert "verifies" in why
    two = summary([cell("kv_f32", 2, 131.0, bytes_per_frame=4_844_000_000), cell("kv_bf16")])
    why = " ".join(same_bits(two, list(records_of(two))).why)
    assert "F32 and BF16" in why
    assert "bf12" not in why
    assert "Speculation" not in why


def test_drafts_are_summed_over_workers_and_told_by_codebook():
    drafts = section().drafts
    found = rows_of(drafts.table)
    assert list(found) == ["spec_bf12 × 2", "spec_bf16 × 2"]
    assert found["spec_bf16 × 2"]["frames"] == "48"
    assert found["spec_bf16 × 2"]["codes a pass"] == "2.42"
    assert found["spec_bf16 × 2"]["speed over plain"].startswith("1.61×")
    assert found["spec_bf12 × 2"]["speed over plain"].startswith("1.40×")
    assert [chart.heading for chart in drafts.charts] == ["spec_bf12 × 2", "spec_bf16 × 2"]
    described = re.search(r"<desc[^>]*>(.*?)</desc>", drafts.charts[0].svg)[1]
    named = re.findall(r"CB\d+", described)
    assert named == [f"CB{at}" for at in (*range(2, 14), 15)]


def test_whose_acceptance_it_is_is_said_plainly():
    assert "for its owner to measure" in " ".join(section().drafts.words)
    assert "made so that many codes can be told ahead" in " ".join(section().drafts.words)
    seeded = section(exact_run(model={"name": "synthetic:0.6b", "synthetic": True}))
    assert "have learnt nothing" in " ".join(seeded.drafts.words)
    real = " ".join(section(exact_run(model={"name": "checkpoint", "synthetic": False})).drafts.words)
    assert "seeded" not in real
    assert "this checkpoint's own drafts" in real


def test_drafts_by_a_quantised_copy_are_told_apart_from_those_of_heads():
    name = "spec_bf16_q8_0"
    run = summary(
        [cell("kv_bf16", 2, 66.0), cell(name, 2, 52.0, format="bf16")],
        comparisons=[compared("kv_bf16", name, 1.27)], model={"name": "synthetic:0.6b", "synthetic": True},
    )  # fmt: skip
    facts = {"speculation": drafted() | {"drafter": "q8_0", "asked": [20] * 15, "held": [18] * 15}}
    records = [
        one.model_copy(update={"facts": facts})
        if one.variant == name
        else one
        for one in exact_records(run)
    ]  # fmt: skip
    drafts = same_bits(run, records).drafts
    assert rows_of(drafts.table)["spec_bf16_q8_0 × 2"]["speed over plain"].startswith("1.27×")
    words = " ".join(drafts.words)
    assert "the model in q8_0 drafts" in words
    assert "learnt nothing" not in words
    described = re.search(r"<desc[^>]*>(.*?)</desc>", drafts.charts[0].svg)[1]
    assert re.findall(r"CB\d+", described) == [f"CB{at}" for at in range(1, 16)]


def test_a_run_of_quantised_speculation_has_its_drafts():
    cells = [cell(f"{kind}_q8_0", 2, 28.0, format="q8_0", arithmetic="q8_0", exact=False) for kind in ("kv", "spec")]
    run = summary(cells, comparisons=[compared("kv_q8_0", "spec_q8_0", 1.2)])
    found = same_bits(run, exact_records(run))
    assert found.table is None
    assert rows_of(found.drafts.table)["spec_q8_0 × 2"]["speed over plain"].startswith("1.20×")
    page = make_page(run, exact_records(run))
    assert TITLE in render_html(page)
    assert "spec_q8_0 × 2" in render_markdown(page).split(TITLE)[1]


def test_a_curve_of_these_weights_and_this_cpu_is_shown():
    run = exact_run()
    drafts = section(run, curves(run)).drafts
    assert drafts.curve is not None
    assert [row[0] for row in drafts.curve_table.rows[:5]] == [
        "0 % right", "50 % right", "80 % right", "100 % right", "the model's own",
    ]  # fmt: skip
    assert "12 rounds of their own" in drafts.curve_words[0]


def test_points_without_a_draft_have_no_share_that_held():
    run = exact_run()
    first, *others, own = curve(run=run).points
    points = [first.model_copy(update={"held": None}), *others, own.model_copy(update={"held": None})]
    drafts = section(run, Speculation(curves=[curve(run=run, points=points)])).drafts
    assert [row[2] for row in drafts.curve_table.rows] == ["–", "50.0 %", "80.0 %", "100 %", "–"]
    told = re.search(r"<desc[^>]*>(.*?)</desc>", drafts.curve.wide)[1]
    assert told.count("no draft:") == 2


@pytest.mark.parametrize(("changes", "why"), [({"digest": "other"}, "other weights"), ({"cpu": "Else"}, "another CPU")])
def test_a_curve_of_something_else_is_not(changes, why):
    run = exact_run()
    drafts = section(run, Speculation(curves=[curve(run=run, **changes)])).drafts
    assert drafts.curve is None
    assert drafts.curve_table is None
    assert why in drafts.curve_words[0]
    assert "python -m bench speculation" in drafts.curve_words[-1]


def test_both_reports_have_it_and_no_foreign_markup():
    run = exact_run()
    wrong = curve("spec_a<b>|x", run=run)
    page = make_page(run, exact_records(run), speculation=Speculation(curves=[curve(run=run), wrong]))
    html, markdown = render_html(page), render_markdown(page)
    assert TITLE in html
    assert "<b>" not in html
    assert f"## {TITLE}" in markdown
    assert "| kv_bf12 × 2 | bf12 | 15 | 1.83 | 50.5" in markdown
    assert r"spec_a&lt;b&gt;\|x" in markdown
    assert CPU in html


def test_names_in_the_chart_lie_on_nothing():
    from reports.label_places import Box, places

    points = [(100.0, 100.0 + 3 * number) for number in range(6)]
    room = Box(0, 0, 400, 300)
    wall = Box(0, 90, 60, 130)
    boxes = places(points, ["a name"] * 6, room, 12, [wall])
    dots = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in points]
    for number, box in enumerate(boxes):
        assert box.within(room)
        assert not any(box.touches(other) for other in [*boxes[:number], *dots, wall])
