"""Several utterances at once in both reports. All figures are made up."""

from __future__ import annotations

import re

from made_up_runs import cell, interval, records_of, summary

from bench.records import Rate, Ratio, StreamPoint, Streams
from reports.html import render_html
from reports.markdown import render_markdown
from reports.page import make_page
from reports.streams import COLUMNS, stream_charts, stream_notes, stream_rows


def point(batch, call_ms=66.0, variant="kv_bf16", **changes):
    rate = 1000 * batch / call_ms
    fields = {
        "variant": variant, "threads": 2, "batch": batch, "exact": True, "gate": "pass", "rounds": 6, "calls": 30,
        "call_ms": interval(call_ms), "frame_ms": interval(call_ms / batch),
        "frames_per_s": Rate(p50=rate, lo=0.98 * rate, hi=1.01 * rate),
        "gain": None if batch == 1 else Ratio(ratio=batch / 2, lo=batch / 2.1, hi=batch / 1.9),
    }  # fmt: skip
    return StreamPoint(**(fields | changes))


def wrong(batch):
    detail = "frame 1 as\nnumber 3 of 8 at once"
    return StreamPoint(variant="kv_bf16", threads=2, batch=batch, exact=False, gate="fail", detail=detail)


STREAMS = Streams(points=[point(1), point(2, 70.0), point(4, 80.0), wrong(8)])


def page(streams):
    run = summary([cell()])
    return make_page(run, list(records_of(run)), streams=streams)


def test_a_row_for_each_number_of_frames():
    rows = stream_rows(STREAMS)
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[2] == (
        "kv_bf16 × 2", "4", "20.0 [19.8, 20.3]", "50.0 [49.0, 50.5]", "2.00× [1.90, 2.11]", "80.0 [79.2, 81.3]", "pass",
    )  # fmt: skip
    assert rows[0][4] == "–"
    assert rows[3] == ("kv_bf16 × 2", "8", "–", "–", "–", "–", "fail")


def test_what_went_wrong_or_was_disturbed_is_told_in_one_line():
    disturbed = Streams(points=[*STREAMS.points, point(2, 70.0, "kv_f16", disturbed=["round 1: 12% stolen"])])
    assert stream_notes(disturbed) == [
        "kv_bf16 × 2, 8 frames at once: fail: frame 1 as number 3 of 8 at once",
        "kv_f16 × 2, 2 frames at once: disturbed: round 1: 12% stolen",
    ]


def test_calls_of_more_frames_than_the_golden_has_are_told_once():
    points = [point(1), *(point(batch, 100.0, golden_frames=10) for batch in (8, 10, 16, 64))]
    others = [point(16, 100.0, "kv_f16", golden_frames=10), point(8, 100.0, "kv_q8_0", golden_frames=4)]
    notes = stream_notes(Streams(points=[*points, *others]))
    assert [note.split(":")[0] for note in notes] == [
        "The golden has 4 frames (kv_q8_0)", "The golden has 10 frames (kv_bf16, kv_f16)",
    ]  # fmt: skip
    assert "a call of 8 has some of them more than once" in notes[0]
    assert "a call of 16 and of 64 has" in notes[1]
    assert stream_notes(Streams(points=[point(1), point(64)])) == []


def test_many_notes_are_folded_behind_the_first():
    points = [point(2, 70.0, f"kv_{number}", disturbed=["stolen"]) for number in range(9)]
    html = render_html(page(Streams(points=points)))
    assert "<summary>5 more</summary>" in html
    assert html.count("disturbed: stolen") == 9


def test_a_chart_for_each_cell_that_was_timed_with_several():
    lone = [point(1, variant="kv_f16"), wrong(2).model_copy(update={"variant": "kv_f16"})]
    charts = stream_charts(Streams(points=[*STREAMS.points, *lone]))
    assert [chart.heading for chart in charts] == ["kv_bf16 × 2"]
    assert charts[0].figures == "frames a second: 15.2 at 1, 28.6 at 2, 50.0 at 4"
    assert charts[0].svg.startswith("<svg")
    assert "frames at once" in charts[0].svg


def test_both_reports_have_them():
    html, markdown = render_html(page(STREAMS)), render_markdown(page(STREAMS))
    assert html.count("<svg") == render_html(page(None)).count("<svg") + 1
    for text in (html, markdown):
        assert "Several utterances at once" in text
        assert "number 3 of 8 at once" in text
    assert re.search(r"\| kv_bf16 × 2 \| 4 \| 20\.0 \[19\.8, 20\.3\] \| 50\.0 ", markdown)


def test_a_run_of_single_frames_says_nothing_of_them():
    for text in (render_html(page(None)), render_markdown(page(None))):
        assert "at once" not in text


def test_foreign_text_is_no_markup():
    named = Streams(points=[point(1, variant="<b>|x"), point(2, variant="<b>|x")])
    assert "<b>" not in render_html(page(named)).split('id="streams"')[1].split("</section>")[0].split("<h2")[0]
    assert r"&lt;b&gt;\|x" in render_markdown(page(named))
