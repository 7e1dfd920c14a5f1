"""Which cells a default sweep chooses, on machines and variants given as data."""

from __future__ import annotations

import pytest

from bench.cells import (
    LEAST_FRAMES,
    MOST_CELLS,
    MOST_FRAMES,
    Cell,
    default_cells,
    every_cell,
    frames_for,
    leading_cell,
    quick_ms,
)
from bench.records import CellRecord, GateOutcome
from cplab.variant import Variant


def variant(name, tier="exact", arithmetic="f32", extra=""):
    return Variant(name, arithmetic, arithmetic, tier, None, "", extra, "")


def machine(times_ms, failing=(), lossy=(), skipping=()):
    """A gate that knows each cell's time; asked cells are kept in ``asked``."""
    asked = []

    def gate(cell):
        asked.append(cell)
        status = "fail" if cell.variant in failing else "skip" if cell.variant in skipping else "pass"
        ms = times_ms(cell)
        quick = [int(ms * 1e6), int(ms * 2e6)] if status == "pass" else []
        outcome = GateOutcome(status=status, detail="pip install it" if status == "skip" else "")
        return CellRecord(
            variant=cell.variant, threads=cell.threads, model="m", round=0, order=0, phase="gate", gate=outcome,
            warmup_ns=quick, facts={"lossy_weights": 7 if cell.variant in lossy else 0},
        )  # fmt: skip

    gate.asked = asked
    return gate


BASE = {"recompute": 300, "kv_f32": 200, "kv_bf16": 100, "numpy": 350}
FOUR = [variant("recompute"), variant("kv_f32"), variant("kv_bf16"), variant("numpy", "codes")]


def scaling(cell):
    return BASE[cell.variant] / min(cell.threads, 2) * (1.3 if cell.threads > 2 else 1)


def test_two_cores_every_variant_on_both_and_the_fastest_exact_one_on_all_counts():
    chosen = default_cells(FOUR, [1, 2, 4], 2, machine(scaling), remaining_s=lambda: 10_000, rounds=6)
    cells = set(chosen.gated)
    assert {Cell(v.name, 2) for v in FOUR} <= cells
    assert {Cell("kv_bf16", n) for n in (1, 2, 4)} <= cells
    assert {Cell(v.name, 1) for v in FOUR} <= cells
    assert not chosen.left_out


def test_a_quantised_or_lossy_variant_is_no_fastest_exact_one():
    every = [*FOUR, variant("kv_q8_0", arithmetic="q8_0"), variant("kv_f16")]
    gate = machine(lambda cell: 10 if cell.variant in ("kv_q8_0", "kv_f16") else scaling(cell), lossy=("kv_f16",))
    chosen = default_cells(every, [1, 2, 4], 2, gate, remaining_s=lambda: 0, rounds=6)
    assert [cell.variant for cell in chosen.gated if cell.threads == 4] == ["kv_bf16"]


def test_no_cell_is_gated_twice_and_there_are_at_most_twelve():
    many = [variant(f"v{n:02}") for n in range(20)]
    gate = machine(lambda cell: 100 + int(cell.variant[1:]))
    chosen = default_cells(many, [1, 2, 4, 8], 4, gate, remaining_s=lambda: 10_000, rounds=6)
    assert len(chosen.gated) == MOST_CELLS
    assert len(gate.asked) == len(set(gate.asked)) == MOST_CELLS


def test_where_fewer_threads_are_faster_all_variants_are_tried_there():
    """Eight threads on a machine with two kinds of core: six are better."""

    def times(cell):
        return BASE[cell.variant] / {1: 1, 2: 2, 4: 4, 6: 5, 8: 0.5}[cell.threads]

    chosen = default_cells(FOUR, [1, 2, 4, 6, 8], 8, machine(times), remaining_s=lambda: 10_000, rounds=6)
    assert {Cell(v.name, 6) for v in FOUR} <= set(chosen.gated)


def test_two_variants_too_close_to_tell_both_show_their_scaling():
    close = [variant("a"), variant("b"), variant("c")]
    times = {"a": 100, "b": 105, "c": 200}
    chosen = default_cells(
        close, [1, 2, 4], 2, machine(lambda c: times[c.variant]), remaining_s=lambda: 10_000, rounds=6
    )
    assert {Cell(name, n) for name in "ab" for n in (1, 2, 4)} <= set(chosen.gated)
    assert Cell("c", 4) not in chosen.gated


def test_without_time_single_threads_are_left_out_and_said_so():
    chosen = default_cells(FOUR, [1, 2, 4], 2, machine(scaling), remaining_s=lambda: 60, rounds=6)
    assert Cell("numpy", 1) not in chosen.gated
    assert any(line.startswith("numpy x 1: not within the time budget") for line in chosen.left_out)


def test_a_variant_that_fails_its_gate_is_asked_once_only():
    gate = machine(scaling, failing={"kv_bf16"})
    chosen = default_cells(FOUR, [1, 2, 4], 2, gate, remaining_s=lambda: 10_000, rounds=6)
    assert [cell for cell in gate.asked if cell.variant == "kv_bf16"] == [Cell("kv_bf16", 2)]
    assert {Cell("kv_f32", n) for n in (1, 2, 4)} <= set(chosen.gated)
    assert all(cell.variant != "kv_bf16" for cell in chosen.passing())


def test_a_variant_of_another_tier_never_leads():
    fast_numpy = {**BASE, "numpy": 10}
    chosen = default_cells(
        FOUR, [1, 2, 4], 2, machine(lambda c: fast_numpy[c.variant] / c.threads), remaining_s=lambda: 0, rounds=6
    )
    assert Cell("numpy", 4) in chosen.gated  # the leader is best on four threads here, so all are tried there
    assert {Cell("kv_bf16", n) for n in (1, 2, 4)} <= set(chosen.gated)


def test_everything_means_everything():
    chosen = every_cell(FOUR, [1, 2, 4], machine(scaling))
    assert len(chosen.gated) == 12


@pytest.mark.parametrize(
    ("frame_ms", "seconds", "expected"), [(100, 3.4, 10), (100, 1.0, LEAST_FRAMES), (1, 60, MOST_FRAMES)]
)
def test_frames_fill_the_time_of_a_worker(frame_ms, seconds, expected):
    assert frames_for(frame_ms, seconds, 2.0) == expected


def test_the_rough_time_is_the_least_call():
    assert quick_ms(machine(scaling)(Cell("kv_bf16", 2))) == 50


def test_a_quick_sweep_is_every_variant_once_and_the_fastest_exact_one_below():
    chosen = default_cells(FOUR, [1, 2, 4], 2, machine(scaling), remaining_s=lambda: 10_000, rounds=2, quick=True)
    assert set(chosen.gated) == {Cell(v.name, 2) for v in FOUR} | {Cell("kv_bf16", 1)}


RIVALS = [variant(f"rival{n}", "quality", extra="engine") for n in range(3)]


def test_rivals_come_after_the_labs_own_and_where_time_is_left():
    asked = machine(lambda c: 100)
    chosen = default_cells([*RIVALS, *FOUR], [1, 2], 2, asked, remaining_s=lambda: 10_000, rounds=6)
    assert {Cell(v.name, 2) for v in RIVALS} <= set(chosen.gated)
    assert [c.variant for c in asked.asked[:4]] == [v.name for v in FOUR]
    short = default_cells([*FOUR, *RIVALS], [1, 2], 2, machine(lambda c: 100), remaining_s=lambda: 0, rounds=6)
    assert not {cell.variant for cell in short.gated} & {v.name for v in RIVALS}
    assert any(line.startswith("rival2 x 2: not within the time budget") for line in short.left_out)


def test_a_missing_extra_is_asked_for_once():
    gate = machine(lambda c: 100, skipping={v.name for v in RIVALS})
    chosen = default_cells([*FOUR, *RIVALS], [1, 2], 2, gate, remaining_s=lambda: 10_000, rounds=6)
    assert [c for c in chosen.gated if c.variant.startswith("rival")] == [Cell("rival0", 2)]
    assert [line for line in chosen.left_out if "rival" in line] == [
        "rival1 x 2: pip install it",
        "rival2 x 2: pip install it",
    ]


def test_rivals_alone_are_measured_like_any():
    chosen = default_cells(RIVALS, [1, 2], 2, machine(lambda c: 100), remaining_s=lambda: 0, rounds=6)
    assert {Cell(v.name, 2) for v in RIVALS} <= set(chosen.gated)


def test_the_leading_cell_is_the_fastest_that_will_be_called_exact():
    times = {"recompute": 300, "kv_f32": 200, "kv_bf16": 100, "numpy": 10}
    chosen = every_cell(FOUR, [1, 2], machine(lambda cell: times[cell.variant] / cell.threads))
    assert leading_cell(chosen, FOUR) == Cell("kv_bf16", 2)
    lossy = every_cell(FOUR, [1], machine(lambda cell: times[cell.variant], lossy=("kv_bf16",)))
    assert leading_cell(lossy, FOUR) == Cell("kv_f32", 1)
    inexact = every_cell(FOUR[3:], [1], machine(lambda cell: 10))
    assert leading_cell(inexact, FOUR) == Cell("numpy", 1)
    nothing = every_cell(FOUR, [1], machine(scaling, failing={v.name for v in FOUR}))
    assert leading_cell(nothing, FOUR) is None


def test_an_oversubscribed_cell_leads_only_where_there_is_no_other():
    chosen = every_cell(FOUR, [2, 4], machine(lambda cell: BASE[cell.variant] / cell.threads))
    for cell, record in chosen.gated.items():
        chosen.gated[cell] = record.model_copy(update={"oversubscribed": cell.threads == 4})
    assert leading_cell(chosen, FOUR) == Cell("kv_bf16", 2)
    only_four = every_cell(FOUR, [4], machine(scaling))
    for cell, record in only_four.gated.items():
        only_four.gated[cell] = record.model_copy(update={"oversubscribed": True})
    assert leading_cell(only_four, FOUR) == Cell("kv_bf16", 4)
