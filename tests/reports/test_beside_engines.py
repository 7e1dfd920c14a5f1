"""Beside other engines: what stands there, what the limit is, and what does not. All figures are made up."""

from __future__ import annotations

import re

import pytest
from made_up_runs import cell, records_of, summary
from made_up_speculation import compared

from bench.records import Fidelity
from reports.beside_engines import TITLE, beside_engines
from reports.beside_engines_chart import MOST_PAIRS
from reports.html import render_html
from reports.markdown import render_markdown
from reports.page import make_page

HOSTILE = "llama_<b>|`x`\n" + "long_" * 40
BF12, BF16, Q8 = 1_829_000_000, 2_424_000_000, 1_290_000_000


def engine(variant, threads=2, p50=90.0, **changes):
    """Another engine's cell: not exact, and without a roof of its own."""
    fields = {"tier": "quality", "arithmetic": variant, "exact": False, "roof_ms": None, "roof_fraction": None}
    return cell(variant, threads, p50, **(fields | changes))


def cells_of_engines():
    """llama.cpp twice and PyTorch, with what each is held beside; PyTorch reads nobody knows how much."""
    own = {"format": "q8_0", "arithmetic": "q8_0", "exact": False, "fidelity": Fidelity(teacher_forced=0.94)}
    return [
        cell("kv_bf16", 2, 75.0, roof_ms=60.0, roof_fraction=0.8),
        cell("kv_bf12", 2, 50.0, roof_ms=45.0, roof_fraction=0.9, bytes_per_frame=BF12),
        cell("kv_q8_0", 2, 40.0, roof_ms=32.0, roof_fraction=0.8, bytes_per_frame=Q8, gbps=32.3, **own),
        cell("kv_f32", 2, 140.0, roof_ms=None, roof_fraction=None),
        engine("llama_kv_bf16", 2, 90.0),
        engine("llama_kv_q8_0", 2, 64.0, bytes_per_frame=Q8, gbps=20.2),
        engine("torch_f32", 2, 280.0, bytes_per_frame=None, gbps=None),
    ]


def engine_run(cells=None, **changes):
    engines = [
        compared("llama_kv_bf16", "kv_bf16", 1.2),
        compared("llama_kv_bf16", "kv_bf12", 1.8),
        compared("llama_kv_q8_0", "kv_q8_0", 1.6),
        compared("llama_kv_q8_0", "kv_bf12", 1.28, verdict="undecided"),
        compared("torch_f32", "kv_f32", 2.0),
    ]
    return summary(cells or cells_of_engines(), **{"engines": engines, **changes})


def rows_of(run=None):
    table = beside_engines(run or engine_run()).table
    names = [heading.name.replace("\N{NO-BREAK SPACE}", " ") for heading in table.headings]
    return {(row[0], row[1]): dict(zip(names, row, strict=True)) for row in table.rows}


def replaced(variant, **changes):
    return engine_run([
        one.model_copy(update=changes) if one.variant == variant else one for one in cells_of_engines()
    ])  # fmt: skip


def page_of(run):
    return make_page(run, list(records_of(run)))


def test_each_pair_has_both_times_the_speed_and_what_memory_allows():
    row = rows_of()["llama_kv_bf16 × 2", "kv_bf16"]
    assert (row["engine's ms a frame"], row["the lab's ms a frame"]) == ("90.0", "75.0")
    assert row["speed over the engine [95 %]"] == "1.20× [1.18, 1.22]"
    assert row["limit"] == "1.50×"  # 90 ms over the 60 ms that reading takes
    assert row["of roof"] == "80.0 %"
    assert (row["engine's GB/s"], row["the lab's GB/s"]) == ("26.9", "32.3")


def test_fewer_bytes_have_a_higher_limit():
    row = rows_of()["llama_kv_bf16 × 2", "kv_bf12"]
    assert (row["limit"], row["of its bytes"]) == ("2.00×", "75.5 %")


def test_the_speed_reached_is_the_limit_times_the_share_of_the_roof():
    for row in rows_of().values():
        if row["limit"] != "–":
            limit, share = float(row["limit"][:-1]), float(row["of roof"].split()[0]) / 100
            speed = float(row["speed over the engine [95 %]"].split("×")[0])
            assert speed == pytest.approx(limit * share, rel=0.01)


def test_they_stand_in_the_summarys_order():
    assert list(rows_of()) == [
        ("llama_kv_bf16 × 2", "kv_bf16"), ("llama_kv_bf16 × 2", "kv_bf12"), ("llama_kv_q8_0 × 2", "kv_q8_0"),
        ("llama_kv_q8_0 × 2", "kv_bf12"), ("torch_f32 × 2", "kv_f32"),
    ]  # fmt: skip


def test_one_that_is_not_exact_says_so_with_its_fidelity():
    found = rows_of()
    assert found["llama_kv_q8_0 × 2", "kv_q8_0"]["exact (fidelity)"] == "no (94.0 %)"
    assert found["llama_kv_q8_0 × 2", "kv_bf12"]["exact (fidelity)"] == "yes"


def test_a_verdict_that_is_none_is_told_with_the_speed():
    speed = rows_of()["llama_kv_q8_0 × 2", "kv_bf12"]["speed over the engine [95 %]"]
    assert speed == "1.28× [1.25, 1.31], undecided"


def test_without_a_roof_the_limit_is_a_dash_and_without_bytes_their_share_is():
    row = rows_of()["torch_f32 × 2", "kv_f32"]
    assert (row["limit"], row["of roof"], row["of its bytes"], row["engine's GB/s"]) == ("–", "–", "–", "–")
    assert row["speed over the engine [95 %]"].startswith("2.00×")
    assert "kv_f32 over torch_f32 × 2: 2.00× [1.96, 2.04], no roof" in beside_engines(engine_run()).chart.wide


def test_a_suspect_roof_is_told_and_says_nothing_of_the_least_room():
    run = replaced("kv_bf16", roof_suspect=True, roof_fraction=1.03)
    assert rows_of(run)["llama_kv_bf16 × 2", "kv_bf16"]["of roof"] == "103 % (suspect)"
    assert "Least room here: llama_kv_q8_0" in beside_engines(run).words[-1]


def test_the_words_name_the_engine_that_leaves_least_room_to_the_same_bytes():
    words = beside_engines(engine_run()).words
    assert words[-1] == (
        "Least room here: llama_kv_bf16 on 2 threads reads its bytes at 66.7 % of the roof, so that what reads as many "
        "has at most 1.50× its speed; kv_bf16 has 1.20× [1.18, 1.22]."
    )
    assert "more takes fewer bytes" in words[1]


def test_where_none_reads_as_many_bytes_no_least_room_is_told():
    run = engine_run(engines=[compared("llama_kv_bf16", "kv_bf12", 1.8), compared("torch_f32", "kv_f32", 2.0)])
    assert not any("Least room" in text for text in beside_engines(run).words)


def test_more_threads_than_cpus_are_marked():
    assert "*" not in "".join(row[0] for row in beside_engines(engine_run()).table.rows)
    run = replaced("llama_kv_bf16", oversubscribed=True)
    assert ("llama_kv_bf16 × 2 *", "kv_bf16") in rows_of(run)
    shown = beside_engines(run).chart
    assert shown.starred
    assert "kv_bf16 over llama_kv_bf16 × 2 *" in shown.wide
    assert "* more threads than CPUs." in render_html(page_of(run)).split(TITLE)[1].split("<h2")[0]


@pytest.mark.parametrize(
    "run",
    [
        engine_run(engines=[]),
        engine_run([cell("kv_bf16")]),
        engine_run([one for one in cells_of_engines() if one.variant.startswith(("llama", "torch"))]),
        engine_run([], engines=[]),
    ],
    ids=["no rivals, or an older summary", "rivals without times", "rivals without partners", "nothing"],
)
def test_without_a_pair_there_is_no_section(run):
    page = page_of(run)
    assert page.beside_engines is None
    assert TITLE not in render_html(page)
    assert TITLE not in render_markdown(page)


def test_both_reports_have_it_after_the_frames_times():
    page = page_of(engine_run())
    html, markdown = render_html(page), render_markdown(page)
    assert html.index("Time a frame</h2>") < html.index(f"{TITLE}</h2>") < html.index("Talker and code predictor</h2>")
    assert f"## {TITLE}" in markdown
    assert (
        "| llama_kv_bf16 × 2 | kv_bf12 | yes | 90.0 | 50.0 | 1.80× [1.76, 1.84] | 2.00× | 90.0 % | 75.5 % |" in markdown
    )


def test_hostile_names_stay_text_and_short():
    cells = [cell("kv_bf16", 2, 75.0), engine(HOSTILE, 2, 90.0, format="bf16")]
    page = page_of(engine_run(cells, engines=[compared(HOSTILE, "kv_bf16", 1.2)]))
    html, markdown = render_html(page), render_markdown(page)
    assert "<b>" not in html
    lines = [line for line in markdown.split(TITLE)[1].split("##")[0].splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert r"llama\_&lt;b&gt;\|\`x\` long" in markdown
    drawn = re.findall(r"<text[^>]*>([^<]*over[^<]*× 2)</text>", page.beside_engines.chart.narrow)
    assert [len(text) <= 50 for text in drawn] == [True]


def test_many_pairs_are_drawn_in_part_and_told_in_full():
    names = [f"llama_kv_{number}" for number in range(MOST_PAIRS + 5)]
    cells = [cell("kv_bf16", 2, 75.0), *(engine(name, 2, 90.0, format="bf16") for name in names)]
    shown = beside_engines(engine_run(cells, engines=[compared(name, "kv_bf16", 1.2) for name in names]))
    assert len(shown.table.rows) == MOST_PAIRS + 5
    assert f"llama_kv_{MOST_PAIRS} " not in shown.chart.wide
    assert f"The first {MOST_PAIRS} pairs" in shown.caption
