"""The quality page: what stands first, the front, the recommendation, the heat maps. All figures are made up."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from made_up_runs import cell as timed
from made_up_runs import summary
from test_report_html import HOSTILE, Document

from bench.records import GateOutcome, ModelFacts
from bench.records.quality import (
    AudioDistance,
    Collapse,
    Estimate,
    FloatRollout,
    Floor,
    FreeRunning,
    NaiveDistance,
    Quality,
    QualityCell,
    QualityFacts,
    Rollout,
    TeacherForced,
)
from bench.records.recipe import RecipeFound, Sensitivity, Step, Trial
from reports.quality_page import NO_RUN, make_quality_page, render_quality_html, render_quality_markdown
from reports.quality_points import best_within, points, recommendation

SEEDED = "This model is made from a seed: these figures are about arithmetic, not about speech."
PASSES = 15


def estimate(value, width=0.02):
    return Estimate(value=value, lo=value - width, hi=min(1.0, value + width))


def pinned(agreement, **changes):
    fields = {
        "frames": 33,
        "rows": 495,
        "non_finite": 0,
        "agreement": estimate(agreement),
        "agreement_by_codebook": [agreement] * (PASSES - 1) + [0.5],
        "agreement_by_margin": estimate(min(1.0, agreement + 0.02)),
        "top5": estimate(agreement),
        "kl": Estimate(value=0.004, lo=0.0035, hi=0.0045),
        "kl_p99": 0.007,
        "kl_worst": 0.5,
        "kl_worst_at": (26, 8),
        "kl_by_codebook": [0.004] * PASSES,
        "delta_p_rms": 0.01,
        "rmse": Estimate(value=0.09, lo=0.08, hi=0.1),
        "cosine": estimate(0.999, 0.0001),
    }
    return TeacherForced(**(fields | changes))


def judged(variant, agreement, **changes):
    own = Collapse(frames=500, distinct=499, repeats=1, codes_used=6000, non_finite=0)
    fields = {
        "variant": variant,
        "format": variant.removeprefix("kv_"),
        "arithmetic": variant.removeprefix("kv_"),
        "tier": "exact",
        "threads": 2,
        "status": "pass",
        "gate": GateOutcome(status="pass", detail="30/30 codes match"),
        "teacher_forced": pinned(agreement),
        "free_running": FreeRunning(
            frames=33,
            failed=0,
            agreement=estimate(0.6),
            agreement_by_codebook=[0.6] * PASSES,
            frames_matched=10,
            first_difference=[7, *[1] * 14],
            codes_before=Estimate(value=9.3, lo=7.6, hi=10.9),
        ),
        "naive": NaiveDistance(
            format="q8_0", rmse=0.088, agreement=0.91, ratio=1.04, ratio_frame=3, ratio_median=1.0, allowed=2.0,
            passed=True, detail="within",
        ),
        "rollout": Rollout(
            window=50, own=own, agreement=[0.01] * 10, first_difference=0, along_every=5,
            along_agreement=[0.93] * 9 + [0.88], along_kl=[0.004] * 10,
        ),
    }  # fmt: skip
    return QualityCell(**(fields | changes))


def quality(cells, synthetic=True, **changes):
    model = ModelFacts(name="synthetic:0.6b", spec={}, digest="d" * 16, synthetic=synthetic)
    facts = QualityFacts(
        command="python -m bench quality", started_utc="2026-12-02T12:00:00Z", elapsed_s=90.0, commit="abcdef012",
        dirty=False, tool_version="0.1.0", threads=2, golden="synthetic-0.6b.npz", golden_reference="torch",
        golden_frames=33, golden_distinct=31, law_by="the oracle",
    )  # fmt: skip
    own = Collapse(frames=500, distinct=500, repeats=0, codes_used=6100, non_finite=0)
    loop = FloatRollout(talker="a seeded stand-in", own=own, unrelated=0.001)
    fields = {"warning": SEEDED if synthetic else "", "model": model, "facts": facts, "float_rollout": loop}
    return Quality(**(fields | {"cells": cells} | changes))


def run():
    """kv_q8_0 fast and near, kv_q4_0 faster and far, one exact on the front and one that is slower than it."""
    return summary(
        [
            timed("kv_q4_0", 2, 20.0, arithmetic="q4_0", exact=False),
            timed("kv_q8_0", 2, 30.0, arithmetic="q8_0", exact=False),
            timed("recompute_q8_0", 2, 90.0, arithmetic="q8_0", exact=False),
            timed("kv_bf16", 2, 60.0),
            timed("kv_f32", 2, 120.0),
            timed("nobody_measured", 2, 10.0, arithmetic="theirs", tier="quality", exact=False),
        ]
    )


CELLS = [judged("kv_q8_0", 0.92), judged("kv_q4_0", 0.43)]


@pytest.fixture(scope="module")
def page():
    return make_quality_page(quality(CELLS), run())


def test_the_first_words_are_that_seeded_weights_are_no_speech(page):
    assert render_quality_markdown(page).splitlines()[0] == f"**{SEEDED}**"
    html = render_quality_html(page)
    assert html.index(SEEDED) < html.index("<h1>")
    assert SEEDED in page.cannot_tell


def test_a_trained_models_page_has_no_such_warning():
    own = make_quality_page(quality(CELLS, synthetic=False), run())
    assert "seed: these" not in render_quality_html(own)
    assert render_quality_markdown(own).startswith("# ")


def test_the_page_is_whole_and_loads_nothing(page):
    text = render_quality_html(page)
    document = Document(text)
    assert len(document.ids) == len(set(document.ids))
    assert set(document.references) <= set(document.ids)
    assert not {tag for tag, _ in document.tags} & {"script", "link", "img", "iframe"}
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    assert text.count("<svg") == 2
    assert text == render_quality_html(page)


def test_points_are_on_the_front_where_none_is_both_faster_and_nearer():
    placed = {point.variant: point for point in points(quality(CELLS), run())}
    assert {name for name, point in placed.items() if point.front} == {"kv_q4_0", "kv_q8_0", "kv_bf16"}
    assert placed["kv_f32"].agreement.value == 1
    assert placed["recompute_q8_0"].agreement == placed["kv_q8_0"].agreement
    assert "nobody_measured" not in placed


@pytest.mark.parametrize(("budget", "best"), [(10, None), (25, "kv_q4_0"), (50, "kv_q8_0"), (1000, "kv_bf16")])
def test_the_best_within_a_budget_is_the_nearest_and_then_the_fastest(budget, best):
    found = best_within(points(quality(CELLS), run()), budget)
    assert (found.variant if found else None) == best


def test_a_budget_is_kept_by_the_whole_interval():
    placed = points(quality(CELLS), run())
    assert best_within(placed, 30.0).variant == "kv_q4_0"


def test_the_recommendation_names_its_budget_and_where_that_comes_from(page):
    assert page.recommendation.startswith("kv_q8_0 on 2 keeps most within ")
    assert "talker" in page.recommendation
    assert page.recommendation in render_quality_markdown(page)


def test_nothing_below_the_floor_is_recommended():
    floor = Floor(least=0.9, source="of the naive Q8_0")
    placed = points(quality(CELLS), run())
    assert recommendation(placed, run(), Floor(least=0.92, source="x")).startswith("kv_q8_0 on 2 keeps most within ")
    slow = [point for point in placed if point.variant != "kv_q8_0" and point.variant != "recompute_q8_0"]
    told = recommendation(slow, run(), floor)
    assert told.startswith("No recommendation: nothing within ")
    assert "keeps 90.0 % of the codes (of the naive Q8_0); the most is 43.0 % of the codes, by kv_q4_0 on 2." in told
    assert told.endswith("The nearest that does is kv_bf16 on 2 at 60.0 ms: every code.")
    only = [point for point in slow if point.variant == "kv_q4_0"]
    assert recommendation(only, run(), floor).endswith("Nor does anything slower in this run.")


def test_the_page_recommends_by_its_own_floor():
    far = quality([judged("kv_q8_0", 0.6), judged("kv_q4_0", 0.43)], floor=Floor(least=0.9, source="of the naive Q8_0"))
    assert make_quality_page(far, run()).recommendation.startswith("No recommendation: ")


def test_what_is_below_the_floor_is_named_whether_or_not_there_are_times():
    found = quality(CELLS, floor=Floor(least=0.5, source="half, since the naive Q8_0 keeps 0.0 % itself"))
    told = (
        "Below 50.0 % of the codes (half, since the naive Q8_0 keeps 0.0 % itself), so not to be recommended: kv_q4_0."
    )
    for text in (render_quality_html(make_quality_page(found)), render_quality_markdown(make_quality_page(found))):
        assert told in re.sub(r"[\\\xa0]", lambda match: "" if match[0] == "\\" else " ", text)
    assert quality(CELLS).below_floor == ""
    assert quality(CELLS, floor=Floor(least=0.4, source="x")).below_floor == ""


def test_without_a_run_it_says_how_to_have_times():
    own = make_quality_page(quality(CELLS))
    assert own.chart is None
    assert own.recommendation == NO_RUN
    assert "<svg" not in render_quality_html(own)


def test_heat_maps_have_every_codebook_and_worse_is_darker(page):
    agreement = page.heats[0]
    assert agreement.columns == ["variant", *(f"CB{g}" for g in range(1, 16))]
    name, entries = agreement.rows[0]
    assert name == "kv_q8_0"
    assert entries[0] == ("92", pytest.approx(0.08))
    assert entries[-1] == ("50", 0.5)
    along = page.heats[-1]
    assert along.columns[1:3] == ["0–", "50–"]
    assert along.rows[0][1][-1] == ("88", pytest.approx(0.12))
    assert "--shade:50%" in render_quality_html(page)


def test_rows_that_are_not_finite_are_told_and_no_distance_is(page):
    bad = pinned(0.9, non_finite=15, kl=None, kl_p99=None, kl_worst=None, kl_worst_at=None, kl_by_codebook=[],
                 rmse=None, cosine=None, top5=None, delta_p_rms=None)  # fmt: skip
    own = make_quality_page(quality([judged("kv_q8_0", 0.92, teacher_forced=bad)]))
    text = render_quality_markdown(own)
    assert "15 of 495 rows not finite" in text
    assert [heat.title for heat in own.heats if "divergence" in heat.title] == []


# -- recipes and sound ------------------------------------------------------------------------------------------------


def trial(formats, megabytes, damage, agreement=0.9):
    lost = pinned(agreement, kl=Estimate(value=damage, lo=damage / 2, hi=2 * damage))
    return Trial(formats=formats, bytes_per_frame=int(megabytes * 1e6), lost=lost)


def sensitive(trials=None):
    few = [trial({"qkv": "q8_0"}, 900, 0.0007), trial({"qkv": "q4_0"}, 800, 0.09), trial({"all": "q8_0"}, 500, 0.004)]
    base = trial({}, 1000, 0.0, 1.0)
    model = ModelFacts(name="synthetic:0.6b", spec={}, digest="d" * 16, synthetic=True)
    return Sensitivity(warning=SEEDED, model=model, frames=6, base=base, trials=few if trials is None else trials)


def searched(**changes):
    fields = {
        "warning": SEEDED, "model": sensitive().model, "frames": 10, "threads": 2, "budget": 50.7, "cost_in": "ms",
        "cost": 50.5, "measured_ms": 51.2, "chosen": trial({"qkv": "q8_0", "o": "q4_0"}, 700, 0.05, 0.787),
        "floor": Floor(least=0.84, source="of the naive Q8_0"), "recommended": True,
        "uniform": [trial({"all": "q8_0"}, 500, 0.004)], "trials": 23,
        "steps": [
            Step(unit="qkv", format="q8_0", cost=60.0, damage=0.001),
            Step(unit="o", format="q4_0", cost=50.0, damage=0.06),
            Step(unit="qkv", format="", cost=50.5, damage=0.05, gave_back=True),
        ],
    }  # fmt: skip
    return RecipeFound(**(fields | changes))


def test_a_class_of_matrices_stands_with_what_it_saves_and_loses():
    page = make_quality_page(quality(CELLS), None, sensitive())
    (section,) = (one for one in page.sections if one.title == "Which matrices bear to be quantised")
    assert list(section.rows[1]) == ["qkv", "q4_0", "200.0", "20.0 %", "0.0900", "90.0 % [88.0, 92.0]", "0.450"]
    html = render_quality_html(page)
    assert html.count("<svg") == 2
    for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL):
        ElementTree.fromstring(svg)
    assert "qkv q4_0: 200 MB, 0.0900 nats" in html
    assert "mathdefault" not in html
    assert re.search(r"\| qkv \| q4\\?_0 \| 200\.0 \|", render_quality_markdown(page))


def test_damage_that_no_logarithm_shows_is_in_the_table_alone():
    bad = pinned(0.1, non_finite=3, kl=None)
    lost = Trial(formats={"down": "q4_0"}, bytes_per_frame=800_000_000, lost=bad)
    page = make_quality_page(quality(CELLS), None, sensitive([lost]))
    (section,) = (one for one in page.sections if one.title == "Which matrices bear to be quantised")
    assert section.chart is None
    assert section.rows[0][4] == "3 of 495 rows not finite"


def test_a_recipe_stands_with_its_way_there():
    page = make_quality_page(quality(CELLS), None, None, searched())
    recipe, path = (one for one in page.sections if "ecipe" in one.title)
    assert recipe.intro.startswith("Within 50.7 ms: qkv q8_0, o q4_0, 50.5 ms, measured 51.2 ms. ")
    assert "The least that is recommended is 84.0 % of the codes (of the naive Q8_0)." in recipe.intro
    assert [row[0] for row in recipe.rows] == ["recommended", "all q8_0"]
    assert [row[0] for row in path.rows] == ["1", "2", "3 gave back"]
    assert path.rows[2][1:4] == ["qkv", "its own", "50.5 ms"]


def test_a_recipe_below_the_floor_is_called_that_and_the_nearest_is_named():
    nearest = trial({"all": "q8_0"}, 500, 0.004)
    page = make_quality_page(
        quality(CELLS), None, None, searched(recommended=False, nearest=nearest, nearest_cost=53.18)
    )
    recipe = next(one for one in page.sections if one.title == "Recipe")
    assert recipe.intro.startswith(
        "No recommendation: nothing that was measured within 50.7 ms keeps 84.0 % of the codes (of the naive Q8_0). "
        "The nearest that does costs 53.2 ms: all q8_0."
    )
    assert [row[0] for row in recipe.rows] == [
        "nearest within, not recommended", "nearest that keeps enough", "all q8_0",
    ]  # fmt: skip


def test_bytes_are_told_as_megabytes():
    found = searched(cost_in="bytes", budget=700e6, cost=690e6, measured_ms=None, floor=None)
    (recipe, _) = (one for one in make_quality_page(quality(CELLS), None, None, found).sections if "ecipe" in one.title)
    assert recipe.intro.startswith("Within 700.0 MB: qkv q8_0, o q4_0, 690.0 MB. 23 recipes")


def test_recorded_codes_are_heard_where_they_were():
    cell = judged("kv_q8_0", 0.92, audio=AudioDistance(seconds=4.0, cosine=0.9992, rmse=0.0038, mel_db=1.25))
    (section,) = (one for one in make_quality_page(quality([cell])).sections if "as sound" in one.title)
    assert list(section.rows[0]) == ["kv_q8_0", "4.00", "0.999200", "0.00380", "1.25"]
    assert not [one for one in make_quality_page(quality(CELLS)).sections if "as sound" in one.title]


def test_what_failed_stands_there_with_its_reason():
    crashed = QualityCell(
        variant="llama_kv_q4_0", format="q4_0", arithmetic="llama_kv_q4_0", tier="quality", threads=2, status="crash",
        reason="killed by SIGSEGV",
    )  # fmt: skip
    own = make_quality_page(quality([crashed]))
    assert own.headline == "No variant was measured."
    assert "killed by SIGSEGV" in render_quality_html(own)


def test_foreign_text_stays_text():
    own = make_quality_page(quality([judged("kv_q8_0", 0.92, status="fail", reason=HOSTILE)]))
    assert not any(tag == "script" for tag, _ in Document(render_quality_html(own)).tags)
    assert "<script" not in render_quality_markdown(own)


def test_what_is_called_exact_cannot_have_other_codes():
    with pytest.raises(ValueError, match="called exact, and other codes"):
        judged("kv_bf16", 0.99, exact=True)
