"""How a sweep spends its time, on a clock that the tests move."""

from __future__ import annotations

import pytest

from bench import budget as module
from bench.budget import RESERVE_S, Budget
from bench.cells import LEAST_FRAMES, MOST_FRAMES
from bench.records import CellRecord, GateOutcome


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def begun(*arguments, **options):
    made = Budget(*arguments, **options)
    made.begin()
    return made


def test_the_least_rounds_are_done_even_where_the_time_is_up(clock):
    budget = begun(60, least_rounds=6)
    clock.now += 500
    assert [budget.another_round(done) for done in (0, 5, 6)] == [True, True, False]


def test_more_rounds_follow_while_the_slowest_so_far_would_fit(clock):
    budget = begun(240, least_rounds=2)
    budget.round_took(30)
    budget.round_took(20)
    clock.now += 240 - RESERVE_S - 31
    assert budget.another_round(2)
    clock.now += 2
    assert not budget.another_round(2)


def test_rounds_that_were_asked_for_are_done_exactly(clock):
    budget = begun(10, rounds=3)
    clock.now += 1000
    assert [budget.another_round(done) for done in (0, 2, 3)] == [True, True, False]


def test_without_a_limit_there_are_as_many_rounds_as_must_be(clock):
    budget = begun(None, least_rounds=6)
    clock.now += 1e6
    assert [budget.another_round(done) for done in (5, 6)] == [True, False]
    assert budget.remaining_s() == float("inf")


def test_frames_share_the_remaining_time(clock):
    budget = begun(RESERVE_S + 6 * 10 * 4.0, least_rounds=6)  # four seconds for each of 60 workers
    record = CellRecord(
        variant="v", threads=1, model="m", round=0, order=0, phase="timed",
        gate=GateOutcome(status="pass", detail=""), samples_ns=[500_000_000], warmup_ns=[250_000_000],
        first_call_ns=250_000_000,
    )  # fmt: skip
    budget.worker_took(3.0, record)  # one second of calls, two of everything else
    assert budget.frames_of(100, cells=10, done=0) == 16
    clock.now += 1e4
    assert budget.frames_of(100, cells=10, done=3) == LEAST_FRAMES
    assert begun(1e6).frames_of(1, cells=1, done=0) == MOST_FRAMES
    assert begun(None, frames=5).frames_of(100, cells=1, done=0) == 5


def test_the_progress_bar_never_expects_less_than_this_round(clock):
    budget = begun(60, least_rounds=2)
    clock.now += 1000
    budget.round_took(30)
    assert budget.rounds_left(7) == 1
