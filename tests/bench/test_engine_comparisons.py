"""Which cells of other engines are held beside which of the lab's own: of the same threads, round by round."""

from __future__ import annotations

import json

import pytest
from made_up_runs_on_disk import MACHINE, finished, plan
from test_summary import record, timed

from bench.engine_comparisons import engine_comparisons
from bench.plan import Plan, PlannedVariant, read_plan
from bench.plan_summary import summary_of
from bench.records import CellRecord, CellSummary, GateOutcome, Interval, read_summary

PASSED = GateOutcome(status="pass", detail="")


def cell(variant, threads=2, ms=10.0, **changes):
    exact = variant.startswith(("kv_", "recompute_")) and not variant.endswith(("q8_0", "q4_0"))
    fields = {
        "variant": variant, "format": variant.split("_", 2 if variant.startswith("llama") else 1)[-1],
        "arithmetic": "f32" if exact else variant, "tier": "exact" if exact else "quality", "threads": threads,
        "gate": "pass", "gate_detail": "", "exact": exact, "cp_ms": Interval(p50=ms, lo=ms, hi=ms, min=ms),
    }  # fmt: skip
    return CellSummary(**(fields | changes))


def found(*cells, engines=("llama", "torch"), noise=None):
    """(engine's, own) of each comparison that 6 rounds give."""
    records = [
        CellRecord(
            variant=one.variant, threads=one.threads, model="made-up", round=number, order=0, phase="timed",
            gate=PASSED, samples_ns=[int(1e6 * one.cp_ms.p50 * (1 + 0.1 * number))],
        )
        for one in cells
        if one.cp_ms
        for number in range(6)
    ]  # fmt: skip
    names = {one.variant for one in cells if one.variant.startswith(engines)}
    return engine_comparisons(records, cells, names, noise)


def pairs(*cells, **options):
    return [(one.a, one.b) for one in found(*cells, **options)]


def test_an_engine_is_held_beside_its_own_kind_and_beside_the_fastest_exact_one():
    cells = [cell("llama_kv_q4_0", ms=12.0), cell("kv_q4_0", ms=6.0), cell("kv_bf16"), cell("kv_bf12", ms=8.0)]
    first, second = found(*cells)
    assert (first.a, first.b, first.verdict) == ("llama_kv_q4_0 x 2", "kv_q4_0 x 2", "faster")
    assert first.ratio.ratio == pytest.approx(0.5)
    assert (second.a, second.b) == ("llama_kv_q4_0 x 2", "kv_bf12 x 2")


def test_the_fastest_exact_one_stands_once_where_it_is_the_same():
    assert pairs(cell("llama_kv_bf16"), cell("kv_bf16")) == [("llama_kv_bf16 x 2", "kv_bf16 x 2")]


def test_recompute_is_held_beside_recompute():
    cells = [cell("llama_recompute_f16", format="f16"), cell("recompute_f16", ms=9.0), cell("kv_f16", ms=5.0)]
    assert [b for _, b in pairs(*cells)] == ["recompute_f16 x 2", "kv_f16 x 2"]


@pytest.mark.parametrize("name", ["torch_f32", "torch_manual", "llama_recompute_f32"])
def test_without_one_of_its_name_it_is_held_beside_the_cached_one_of_its_format(name):
    assert pairs(cell(name, format="f32"), cell("kv_f32"), cell("kv_bf16", ms=20.0)) == [(f"{name} x 2", "kv_f32 x 2")]


def test_what_the_user_brought_has_a_format_and_no_name():
    brought = cell("external:python my_kv_bf16", format="f16")
    own = [cell("kv_f16", ms=11.0), cell("kv_bf16", ms=12.0)]
    assert pairs(brought, *own, engines=("external:",)) == [(f"{brought.variant} x 2", "kv_f16 x 2")]


def test_cells_of_other_threads_are_not_compared():
    cells = [cell("llama_kv_f16", 1), cell("llama_kv_f16", 2), cell("kv_f16", 2), cell("kv_f16", 4)]
    assert pairs(*cells) == [("llama_kv_f16 x 2", "kv_f16 x 2")]


def test_an_engine_without_a_partner_is_not_held_beside_another_engine():
    assert pairs(cell("llama_kv_f16"), cell("torch_f16", format="f16")) == []


def test_a_run_without_another_engine_has_none():
    assert pairs(cell("kv_f16"), cell("kv_q8_0")) == []


def test_cells_without_times_have_no_part():
    lost = {"gate": "fail", "exact": False, "cp_ms": None}
    assert pairs(cell("llama_kv_f16", **lost), cell("kv_f16")) == []
    assert pairs(cell("llama_kv_f16"), cell("kv_f16", **lost), cell("kv_bf16")) == [("llama_kv_f16 x 2", "kv_bf16 x 2")]


def test_an_engine_that_claims_the_labs_bits_is_still_no_partner():
    claims = {"tier": "exact", "arithmetic": "f32", "exact": True, "ms": 1.0}
    assert pairs(cell("llama_kv_f16"), cell("torch_f32", **claims), cell("kv_f16")) == [
        ("llama_kv_f16 x 2", "kv_f16 x 2"), ("torch_f32 x 2", "kv_f16 x 2"),
    ]  # fmt: skip


def test_they_stand_by_variant_and_then_by_threads():
    cells = [cell(name, count) for count in (2, 1) for name in ("torch_f16", "llama_kv_f16", "kv_f16")]
    assert [a for a, _ in pairs(*cells)] == ["llama_kv_f16 x 1", "llama_kv_f16 x 2", "torch_f16 x 1", "torch_f16 x 2"]


def test_a_difference_within_the_runs_noise_is_none():
    cells = [cell("llama_kv_f16", ms=10.0), cell("kv_f16", ms=9.6)]
    assert [one.verdict for one in found(*cells)] == ["faster"]
    assert [one.verdict for one in found(*cells, noise=0.06)] == ["same"]


def test_odd_names_do_no_harm():
    odd = ["external:./my|engine <b>?format=f16", "_", "x_", "\n_kv_f16"]
    cells = [cell("kv_f16"), *(cell(name, format="f16") for name in odd)]
    assert {b for _, b in pairs(*cells, engines=tuple(odd))} == {"kv_f16 x 2"}


# From the plan to the summary.


def planned(name, **changes):
    return PlannedVariant(name=name, format="f16", arithmetic="f32", tier="exact", **changes)


def measured():
    names = {"llama_kv_f16": 80.0, "kv_f16": 60.0}
    return [*map(record, names), *(timed([ms, ms], name, round=at) for at in range(6) for name, ms in names.items())]


def engines_of(*variants):
    run = plan(variants=list(variants), baseline="kv_f16")
    return summary_of(run, measured(), MACHINE, elapsed_s=1.0, interrupted=False).engines


def test_a_variant_behind_an_extra_or_of_the_users_own_is_another_engine():
    assert planned("llama_kv_f16", extra="llama").is_engine
    assert planned("external:./libmine.so").is_engine
    assert not planned("kv_f16").is_engine


def test_a_sweeps_summary_has_them():
    (one,) = engines_of(planned("llama_kv_f16", extra="llama"), planned("kv_f16"))
    assert (one.a, one.b, one.rounds) == ("llama_kv_f16 x 2", "kv_f16 x 2", 6)
    assert one.ratio.ratio == pytest.approx(0.75)


def test_a_plan_of_an_older_version_knows_no_engine(tmp_path):
    """It is read all the same, and so is a summary that an older version wrote."""
    folder = finished(tmp_path / "runs" / "run")
    for name in ("plan.json", "summary.json"):
        raw = json.loads((folder / name).read_text())
        raw.pop("engines", None)
        for one in raw.get("variants", []):
            del one["extra"]
        (folder / name).write_text(json.dumps(raw))
    assert [one.extra for one in read_plan(folder).variants] == ["", ""]
    assert read_summary(folder / "summary.json").engines == []
    assert engines_of(planned("llama_kv_f16"), planned("kv_f16")) == []


def test_a_plan_in_writing_keeps_the_extra():
    run = plan(variants=[planned("llama_kv_f16", extra="llama")])
    assert Plan.model_validate_json(run.model_dump_json(by_alias=True)).variants[0].extra == "llama"
