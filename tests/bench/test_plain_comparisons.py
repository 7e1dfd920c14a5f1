"""Which cells of a run are held beside which: those with the same bits, of the same threads, round by round."""

from __future__ import annotations

import pytest

from bench.plain_comparisons import plain_comparisons
from bench.records import CellRecord, CellSummary, GateOutcome, Interval

PASSED = GateOutcome(status="pass", detail="")


def cell(variant, threads=2, **changes):
    fields = {
        "variant": variant, "format": variant.split("_", 1)[1], "arithmetic": "f32", "tier": "exact",
        "threads": threads, "gate": "pass", "gate_detail": "", "exact": True,
        "cp_ms": Interval(p50=1, lo=1, hi=1, min=1),
    }  # fmt: skip
    return CellSummary(**(fields | changes))


def records_of(cells, ms):
    return [
        CellRecord(
            variant=one.variant, threads=one.threads, model="made-up", round=number, order=0, phase="timed",
            gate=PASSED, samples_ns=[int(1e6 * ms[one.variant] * (1 + 0.1 * number))],
        )
        for one in cells
        for number in range(6)
    ]  # fmt: skip


def test_each_exact_cell_is_held_beside_f32_bf16_and_its_own_plain_one():
    cells = [cell(name) for name in ("kv_f32", "kv_bf16", "kv_bf12", "spec_bf12")]
    found = plain_comparisons(
        records_of(cells, {"kv_f32": 8.0, "kv_bf16": 4.0, "kv_bf12": 3.0, "spec_bf12": 2.0}), cells
    )
    assert [(one.a, one.b) for one in found] == [
        ("kv_bf16 x 2", "kv_f32 x 2"), ("kv_f32 x 2", "kv_bf16 x 2"),
        ("kv_f32 x 2", "kv_bf12 x 2"), ("kv_bf16 x 2", "kv_bf12 x 2"),
        ("kv_f32 x 2", "spec_bf12 x 2"), ("kv_bf16 x 2", "spec_bf12 x 2"), ("kv_bf12 x 2", "spec_bf12 x 2"),
    ]  # fmt: skip
    last = found[-1]
    assert last.ratio.ratio == pytest.approx(2 / 3)
    assert last.verdict == "faster"


def test_other_bits_other_threads_and_untimed_cells_are_not_compared():
    cells = [
        cell("kv_bf16", 2),
        cell("kv_bf12", 1),
        cell("kv_q8_0", 2, arithmetic="q8_0", exact=False),
        cell("numpy_bf16", 2, tier="codes", exact=False),
        cell("kv_f32", 2, gate="fail", exact=False, cp_ms=None),
        cell("spec_f16", 2, tier="quality", exact=False, lossy_weights=3),
    ]
    assert plain_comparisons(records_of(cells, {one.variant: 1.0 for one in cells}), cells) == []


def test_quantised_speculation_is_held_beside_the_plain_one_of_its_format():
    """Their packing changes weights, so that they are labelled quality; both are judged on the changed ones."""
    shared = {"arithmetic": "q8_0", "tier": "quality", "exact": False, "lossy_weights": 3}
    cells = [cell(f"{kind}_q8_0", **shared) for kind in ("kv", "spec")]
    found = plain_comparisons(records_of(cells, {"kv_q8_0": 2.0, "spec_q8_0": 2.0}), cells)
    assert [(one.a, one.b, one.verdict) for one in found] == [("kv_q8_0 x 2", "spec_q8_0 x 2", "same")]


def test_a_difference_within_the_runs_noise_is_none():
    cells = [cell("kv_bf16"), cell("spec_bf16")]
    records = records_of(cells, {"kv_bf16": 1.0, "spec_bf16": 0.96})
    assert [one.verdict for one in plain_comparisons(records, cells)] == ["faster"]
    assert [one.verdict for one in plain_comparisons(records, cells, noise=0.06)] == ["same"]
