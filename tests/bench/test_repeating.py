"""A sweep whose machine is disturbed, with made-up workers in the place of processes."""

import pytest
from made_up_runs_on_disk import MACHINE, plan
from test_summary import failed, record, timed

from bench import sweep
from bench.options import Contender, Options
from bench.repeating import IN_VAIN
from bench.sweep_start import Start
from cplab.variant import Variant

NAMES = ("recompute_f16", "kv_bf16")
ROUNDS = 6


class Workers:
    """Gives every cell a record; ``disturbed(name, round, nth)`` says what spoils the nth measurement of a round."""

    def __init__(self, disturbed):
        self.disturbed, self.asked = disturbed, []

    def gate(self, cell):
        return record(cell.variant)

    def timed(self, cell, original, *, frames, reads, number, order, lossy):
        self.asked.append((cell.variant, number))
        nth = self.asked.count((cell.variant, number))
        why = self.disturbed(cell.variant, number, nth)
        return timed([60.0, 60.0], cell.variant, round=number, facts={"disturbed": why})


def swept(monkeypatch, disturbed, kind=Workers):
    workers = kind(disturbed)
    monkeypatch.setattr(sweep, "Workers", lambda options, prepared: workers)
    contenders = [
        Contender(name, Variant(name, "f16", "f32", "exact", lambda model, threads: None, "", "", "")) for name in NAMES
    ]
    options = Options("synthetic:0.6b", contenders, threads=[2], rounds=ROUNDS, frames=2, write=False)
    start = Start(options, plan(threads=[2], rounds=ROUNDS), dict(MACHINE), {None: {}}, None)
    outcome = sweep.go_on(start)
    return workers.asked, {cell.variant: cell for cell in outcome.summary.cells}


def test_a_quiet_machine_is_asked_once_for_each_cell_and_round(monkeypatch):
    asked, cells = swept(monkeypatch, lambda name, number, nth: "")
    assert len(asked) == 2 * ROUNDS
    assert all(cell.disturbed == [] for cell in cells.values())


def test_a_disturbed_measurement_is_made_once_more_and_both_stay(monkeypatch):
    def disturbed(name, number, nth):
        return "9% of CPU time stolen" if (name, number, nth) == ("kv_bf16", 2, 1) else ""

    asked, cells = swept(monkeypatch, disturbed)
    assert len(asked) == 2 * ROUNDS + 1
    assert asked.count(("kv_bf16", 2)) == 2
    assert cells["kv_bf16"].disturbed == ["round 3: 9% of CPU time stolen"]
    assert (cells["kv_bf16"].rounds, cells["kv_bf16"].frames) == (ROUNDS, 2 * ROUNDS + 2)
    assert cells["recompute_f16"].disturbed == []


def test_what_is_disturbed_again_is_not_measured_a_third_time(monkeypatch):
    asked, cells = swept(monkeypatch, lambda name, number, nth: "stolen" if (name, number) == ("kv_bf16", 0) else "")
    assert asked.count(("kv_bf16", 0)) == 2
    assert cells["kv_bf16"].disturbed == ["round 1: stolen", "round 1 again: stolen"]


def test_a_machine_that_is_busy_for_good_is_not_asked_twice_for_everything(monkeypatch):
    asked, cells = swept(monkeypatch, lambda name, number, nth: "stolen")
    assert len(asked) == 2 * ROUNDS + IN_VAIN
    assert sum(len(cell.disturbed) for cell in cells.values()) == len(asked)


@pytest.mark.parametrize("status", ["fail", "crash"])
def test_a_repeat_that_goes_wrong_takes_the_cell_out(monkeypatch, status):
    class Faulty(Workers):
        def timed(self, cell, original, **asked):
            made = super().timed(cell, original, **asked)
            if self.asked.count((cell.variant, asked["number"])) == 2:
                return failed(status, variant=cell.variant, round=asked["number"])
            return made

    asked, cells = swept(monkeypatch, lambda name, number, nth: "stolen" if name == "kv_bf16" else "", Faulty)
    assert asked.count(("kv_bf16", 1)) == 0
    assert cells["kv_bf16"].gate == status
    assert cells["kv_bf16"].cp_ms is None
