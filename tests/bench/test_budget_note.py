"""A time budget that was exceeded is told, before where that can be known, and afterwards with what took the time."""

from __future__ import annotations

import re

import pytest
from bench_command import bench

from bench import budget_note
from bench.budget_note import GATES, ROUNDS, SETUP, SOAK, Spent, forecast


def test_a_budget_that_was_kept_or_that_is_none_has_no_note():
    spent = Spent({SETUP: 20.0, ROUNDS: 40.0})
    assert spent.note(60, 6) == ""
    assert spent.note(None, 6) == ""


def test_what_took_the_time_is_told():
    told = Spent({SETUP: 100.4, GATES: 0.2, ROUNDS: 227.0}).note(60, 6)
    assert told.startswith(
        "the time budget of 60 s was exceeded: 328 s, of which 100 s models and kernels, 227 s rounds;"
    )
    assert "gates," not in told
    assert "6 rounds are done whatever they take" in told
    assert "1 round is done" in Spent({ROUNDS: 61.0}).note(60, 1)


def test_a_soak_has_its_own_seconds():
    spent = Spent({ROUNDS: 50.0, SOAK: 600.0})
    assert spent.note(60, 6) == ""
    assert "the soak" not in spent.note(40, 6)


def test_time_is_added_up_also_where_something_is_interrupted(monkeypatch):
    now = iter([10.0, 15.0, 20.0, 22.0])
    monkeypatch.setattr(budget_note.time, "monotonic", lambda: next(now))
    spent = Spent({SETUP: 1.0})
    with spent.on(ROUNDS):
        pass
    with pytest.raises(KeyboardInterrupt), spent.on(ROUNDS):
        raise KeyboardInterrupt
    assert spent.seconds == {SETUP: 1.0, ROUNDS: 7.0}


def test_what_cannot_be_within_the_budget_is_told_before():
    assert forecast(60, 10.0, 50.0, 4, 6) == ""
    assert forecast(None, 10.0, 1e6, 4, 6) == ""
    told = forecast(60, 10.0, 310.0, 4, 6)
    assert told == "this will take about 320 s, more than the time budget of 60 s: 6 rounds are done of 4 cells"


@pytest.mark.slow
@pytest.mark.parametrize(
    "asked",
    [
        ["sweep", "--variants", "kv_bf16", "--threads", "1", "--no-talker", "--quick"],
        ["compare", "kv_bf16", "kv_f32", "-t", "1", "--rounds", "1", "--no-aa"],
    ],
)
def test_both_commands_say_so(asked, tmp_path):
    result = bench(*asked, "--model", "synthetic:tiny", "--time-budget", "1", cwd=tmp_path, timeout=500)
    assert result.returncode in (0, 3), result.stderr
    assert len(re.findall(r"the time budget of 1 s was exceeded: \d+ s, of which .*", result.stdout)) == 1
    assert "this will take about" in result.stderr
