"""The talker as one more cell of a sweep: which one, what its records come to, and what its misfortunes cost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import ValidationError

from bench.options import Options
from bench.records import CellRecord, GateOutcome, read_records, read_summary
from bench.rounds import worth_more
from bench.talker_cell import NAME, TalkerCell, talker_of
from bench.talker_timing import time_talker
from bench.timed_rounds import timed_records

MS = 1_000_000
WIDTH = 8


# -- timing -----------------------------------------------------------------------------------------------------------


class MadeUpTalker:
    """Notes what it is fed; its states are zeros, or NaN from a step on."""

    def __init__(self, not_finite_from=10**9):
        self.fed, self.not_finite_from = [], not_finite_from

    def prefill(self, X):
        self.fed.append(("prefill", X.shape))
        return self._heard()

    def step(self, x):
        self.fed.append(("step", float(x[0])))
        return self._heard()

    def _heard(self):
        state = np.full(WIDTH, np.nan if len(self.fed) > self.not_finite_from else 0, np.float32)
        return SimpleNamespace(hidden=state, logits=np.zeros(3, np.float32))


def rows(count):
    return np.arange(count, dtype=np.float32)[:, None] * np.ones(WIDTH, np.float32)


def test_steps_follow_a_prefill_that_is_warm_and_each_has_its_own_input():
    talker = MadeUpTalker()
    found = time_talker(talker, rows(19), rows(5), warmup=2)
    assert talker.fed == [("prefill", (19, WIDTH))] * 2 + [("step", float(n)) for n in range(5)]
    assert (len(found.warmup), len(found.steps), found.finite) == (2, 3, True)
    assert min(found.first_prefill, found.prefill, *found.steps) > 0


@pytest.mark.parametrize("last_good", [0, 1, 3, 6])
def test_a_state_that_is_not_finite_is_seen_wherever_it_comes(last_good):
    assert not time_talker(MadeUpTalker(last_good), rows(19), rows(5), warmup=2).finite


# -- records ----------------------------------------------------------------------------------------------------------


def record(number, samples=(), phase="talker", status="pass", threads=2, **fields):
    gate = GateOutcome(status=status, detail="made up" if status == "pass" else f"made-up {status}")
    return CellRecord(
        variant=NAME, threads=threads, model="made-up", round=number, order=0, phase=phase, gate=gate,
        samples_ns=[round(ms * MS) for ms in samples], **fields,
    )  # fmt: skip


def trial(threads, ms):
    return record(0, phase="talker_trial", threads=threads, warmup_ns=[round(ms * MS)])


def test_a_record_that_went_wrong_holds_no_prefill():
    with pytest.raises(ValidationError, match="times on a record"):
        record(0, status="fail", prefill_ns=5)


def test_the_unit_is_the_round():
    facts = {"talker": "made-up:talker", "backend": "made-up 1.0", "kind": "q8_0", "positions": 19}
    records = [record(n, (40 + n, 41 + n, 60), prefill_ns=(100 + n) * MS, facts=facts) for n in range(5)]
    talker, without = talker_of([trial(1, 70), trial(2, 39), *records])
    assert without is None
    assert (talker.step_ms.p50, talker.step_ms.min) == (43, 40)  # of round medians 41..45
    assert 41 <= talker.step_ms.lo <= 43 <= talker.step_ms.hi <= 45
    assert (talker.prefill_ms, talker.rounds, talker.steps, talker.threads) == (102, 5, 15, 2)
    assert (talker.name, talker.backend, talker.positions) == ("made-up:talker", "made-up 1.0 Q8_0", 19)
    assert "70 ms on 1, 39 ms on 2" in talker.threads_reason


@pytest.mark.parametrize("status", ["fail", "crash"])
def test_what_goes_wrong_in_one_round_takes_the_times_away(status):
    talker, without = talker_of([trial(2, 39), record(0, (40,)), record(1, status=status)])
    assert talker is None
    assert (without.status, without.reason) == (status, f"round 2: made-up {status}")


def test_a_trial_that_crashed_on_other_threads_costs_nothing():
    crashed = record(0, phase="talker_trial", status="crash", threads=1)
    talker, _ = talker_of([crashed, trial(2, 39), record(0, (40,))])
    assert talker.step_ms.p50 == 40


def test_runs_that_did_not_come_to_it_or_never_asked():
    assert talker_of([]) == (None, None)
    assert talker_of([trial(2, 39)])[1].reason == "the run ended before it was measured"


def test_talker_samples_are_no_code_predictors():
    records = [record(0, (40,)), record(0, (66,), phase="timed").model_copy(update={"variant": "kv"})]
    assert list(timed_records(records)) == [("kv", 2)]
    assert list(timed_records(records, "talker")) == [(NAME, 2)]


def test_rounds_go_on_for_a_talker_that_scatters_and_stop_for_a_settled_one():
    from bench.cells import Cell

    cell = Cell(NAME, 2)
    scattered = [record(n, (40 + 10 * (n % 2),)) for n in range(8)]
    settled = [record(n, (40 + 0.01 * (n % 2),)) for n in range(8)]
    assert worth_more([cell], scattered, baseline="recompute_f16") == [cell]
    assert worth_more([cell], settled, baseline="recompute_f16") == []


# -- which talker -----------------------------------------------------------------------------------------------------


def left_out(monkeypatch, model="synthetic:tiny", width=64, **asked):
    """The reason of a talker that is not measured; a worker must not be needed for it."""
    cell = TalkerCell(Options(model, [], talker=asked.pop("talker", ""), **asked), {"talker_hidden": width}, [1, 2], 2)
    monkeypatch.setattr(cell, "_run", lambda *_, **__: pytest.fail("a worker was started"))
    kept = []
    cell.choose([], kept.append)
    assert cell.cells == []
    assert [one.gate.status for one in kept] == ["skip"]
    return kept[0].reason


def test_none_is_wanted(monkeypatch):
    assert left_out(monkeypatch, talker=None, no_talker=True) == "left out (--no-talker)"


def test_a_width_without_a_seeded_talker_is_named(monkeypatch):
    told = left_out(monkeypatch, "synthetic:1.7b", 2048)
    assert "synthetic:1.7b" in told
    assert "2048" in told
    assert "--talker" in told


def test_a_checkpoint_is_told_how_to_export_its_own(monkeypatch, tmp_path):
    told = left_out(monkeypatch, str(tmp_path))
    assert f"python -m cplab export {tmp_path} --talker" in told
    file = left_out(monkeypatch, "cp.gguf")
    assert "--talker" in file
    assert "export" not in file


def test_quick_makes_no_file(monkeypatch, tmp_path):
    monkeypatch.setenv("CPLAB_CACHE", str(tmp_path))
    told = left_out(monkeypatch, "synthetic:0.6b", 1024, quick=True)
    assert "synthetic-talker:0.6b is not made yet" in told
    assert "--quick" in told


def test_comparisons_do_not_ask_for_one():
    cell = TalkerCell(Options("synthetic:tiny", []), {"talker_hidden": 64}, [1], 1)
    cell.choose([], lambda _: pytest.fail("a record was kept"))
    assert cell.cells == []


@pytest.mark.parametrize(
    ("threads", "physical", "quick", "tried"),
    [
        ([1, 2, 4], 2, False, [1, 2]),
        ([1, 2, 4, 8, 16], 8, False, [2, 4, 8]),
        ([1, 2, 4, 8], 4, True, [4]),
        ([8], 4, False, [8]),
    ],
)
def test_the_fastest_of_the_counts_up_to_the_cores_is_taken(monkeypatch, threads, physical, quick, tried):
    cell = TalkerCell(
        Options("synthetic:tiny", [], talker="mine.gguf", quick=quick), {"talker_hidden": 64}, threads, physical
    )
    ran = []

    def run(phase, talker, count, **_):
        if phase == "talker_prepare":
            return record(0, phase="talker_trial", facts={"path": f"/made/up/{talker}"})
        ran.append(count)
        return trial(count, 100 + abs(count - 4))

    monkeypatch.setattr(cell, "_run", run)
    cell.choose([], lambda one: one)
    assert ran == tried
    assert [one.threads for one in cell.cells] == [min(tried, key=lambda count: abs(count - 4))]


# -- in a sweep -------------------------------------------------------------------------------------------------------


def swept(folder, *more, llama=None):
    """A sweep of one cell; ``llama``: source of a module that stands in for llama-cpp-python."""
    environment = dict(os.environ)
    if llama is not None:
        (folder / "stands-in" / "llama_cpp").mkdir(parents=True)
        (folder / "stands-in" / "llama_cpp" / "__init__.py").write_text(llama)
        paths = [str(folder / "stands-in"), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    result = subprocess.run(
        [
            sys.executable, "-m", "bench", "sweep", "--model", "synthetic:tiny", "--variants", "kv_bf16",
            "--threads", "1", "--rounds", "1", "--frames", "3", *more,
        ],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    runs = [path for path in folder.glob("reports/runs/*/*") if not path.name.startswith(".")]
    return result, runs[0] if runs else None


def told_everywhere(result, run, reason):
    """On the terminal, in the records, in the summary and in both reports; and the cell was measured all the same."""
    assert reason in " ".join(result.stdout.split())
    kept = [one for one in read_records(run / "records.jsonl") if one.variant == NAME]
    assert any(reason in (one.reason or one.gate.detail) for one in kept)
    summary = read_summary(run / "summary.json")
    assert summary.talker is None
    assert reason in summary.without_talker.reason
    for page in ("report.md", "report.html"):
        assert reason.partition("'")[0] in (run / page).read_text(encoding="utf-8")
    assert [cell.gate for cell in summary.cells] == ["pass"]
    assert summary.cells[0].cp_ms is not None


@pytest.mark.slow
def test_a_missing_extra_is_told_with_its_install_command(tmp_path):
    result, run = swept(tmp_path, llama="raise ImportError('stands in for a missing package')")
    assert result.returncode == 0, result.stderr
    told_everywhere(result, run, "llama-cpp-python is not installed: python -m pip install 'cplab[llama]'")


@pytest.mark.slow
def test_a_talker_that_dies_costs_itself_only(tmp_path):
    result, run = swept(tmp_path, llama="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert result.returncode == 2, result.stderr
    told_everywhere(result, run, "killed by SIGSEGV")
    assert read_summary(run / "summary.json").without_talker.status == "crash"


@pytest.mark.slow
def test_it_can_be_left_out(tmp_path):
    result, run = swept(tmp_path, "--no-talker", llama="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert result.returncode == 0, result.stderr
    told_everywhere(result, run, "left out (--no-talker)")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [(("--talker", "a.gguf", "--no-talker"), "one of them"), (("--talker", "no-such.gguf"), "no-such.gguf")],
)
def test_wrong_use_is_one_line_and_exit_1(tmp_path, arguments, told):
    pytest.importorskip("llama_cpp", reason="needs the extra llama: python -m pip install 'cplab[llama]'")
    result, run = swept(tmp_path, *arguments)
    assert result.returncode == 1
    assert told in result.stderr
    assert "Traceback" not in result.stderr
    assert run is None
    assert not list(Path(tmp_path).glob("reports/runs/*/.*"))
