"""A sweep that is killed, gone on with, measured twice, soaked, or compared with another revision: end to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from bench_command import bench
from test_sweep import ODD, only_run

from bench.records import read_records, read_summary
from bench.sources import OWN_TREE

TINY = ("--model", "synthetic:tiny")
needs_git = pytest.mark.skipif(not (OWN_TREE / ".git").exists(), reason="not a git checkout")


def killed_sweep(folder, *arguments, records):
    """A sweep that got SIGKILL after so many records; its hidden folder."""
    command = [sys.executable, "-m", "bench", "sweep", *TINY, "--threads", "1", "--frames", "3", *arguments]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        found = list(folder.glob("reports/runs/*/.*/records.jsonl"))
        if found and len(found[0].read_text().splitlines()) >= records:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (hidden,) = folder.glob("reports/runs/*/.*")
    return hidden


@pytest.mark.slow
def test_a_killed_sweep_is_gone_on_with_where_it_was(tmp_path):
    hidden = killed_sweep(tmp_path, "--variants", "kv_f32,kv_bf16", "--rounds", "4", "--seed", "3", records=5)
    before = read_records(hidden / "records.jsonl", torn=True)
    assert 5 <= len(before) < 10
    result = bench("sweep", "--resume", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "going on with the run" in result.stdout
    folder = only_run(tmp_path)
    assert folder.name == hidden.name[1:].rpartition(".")[0]
    assert not hidden.exists()
    records = read_records(folder / "records.jsonl")
    assert records[: len(before)] == before
    keys = [(r.phase, r.variant, r.round) for r in records]
    assert len(keys) == len(set(keys))
    cells = [key for key in keys if not key[0].startswith("talker")]
    assert len(cells) == 2 + 2 * 4 + 1  # each cell was gated once, and once in each round; the fastest was profiled
    assert sum(key[0] == "profile" for key in keys) == 1
    assert sum(key[0] == "talker_trial" for key in keys) == 1
    assert sum(key[0] == "talker" for key in keys) in (0, 4)  # none where the extra is missing
    summary = read_summary(folder / "summary.json")
    assert not summary.run.interrupted
    assert {cell.rounds for cell in summary.cells} == {4}
    assert summary.run.seed == 3
    assert "--rounds 4" in summary.run.command
    assert (folder / "report.html").is_file()
    again = bench("sweep", "--resume", cwd=tmp_path)
    assert again.returncode == 1
    assert "nothing to resume" in again.stderr


@pytest.mark.slow
def test_a_killed_sweep_can_be_reported(tmp_path):
    hidden = killed_sweep(tmp_path, "--variants", "kv_f32", "--rounds", "500", "--no-talker", records=5)
    result = bench("report", str(hidden), cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    folder = only_run(tmp_path)
    assert str(folder / "report.md") in str(tmp_path / result.stdout.split()[-1])
    assert "interrupted" in (folder / "report.md").read_text()
    assert read_summary(folder / "summary.json").cells[0].rounds >= 2


def test_resume_takes_the_runs_own_options(tmp_path):
    result = bench("sweep", "--resume", "--rounds", "9", "--model", "synthetic:tiny", cwd=tmp_path)
    assert result.returncode == 1
    assert "leave out --model, --rounds" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_run_tells_its_own_noise_and_what_a_long_time_does(tmp_path):
    result = bench(
        "sweep", *TINY, "--threads", "1", "--rounds", "3", "--frames", "3", "--variants", "kv_f32", "--aa",
        "--soak", "1", "--order", "abba", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    folder = only_run(tmp_path)
    summary = read_summary(folder / "summary.json")
    assert [cell.variant for cell in summary.cells] == ["kv_f32"]
    assert summary.repeatability.rounds == 3
    assert summary.soak.seconds == pytest.approx(1, rel=0.3)
    timed = [record for record in read_records(folder / "records.jsonl") if record.phase == "timed"]
    names = ["kv_f32", "kv_f32 (again)"]
    assert [record.variant for record in timed] == [*names, *names[::-1], *names]
    assert "A/A: kv_f32 x 1 beside itself" in result.stdout
    assert "soak: kv_f32 x 1" in result.stdout


@pytest.mark.slow
def test_wrong_codes_late_in_a_soak_take_the_times_away(tmp_path):
    result = bench(
        "sweep", *TINY, "--threads", "1", "--rounds", "1", "--frames", "3", "--variant-file", str(ODD),
        "--variants", "late", "--soak", "1", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    summary = read_summary(only_run(tmp_path) / "summary.json")
    assert (summary.cells[0].gate, summary.cells[0].cp_ms, summary.soak) == ("fail", None, None)


@pytest.mark.slow
def test_run_prints_a_cells_figures_and_writes_nothing(tmp_path):
    result = bench("run", "kv_f32", *TINY, "--rounds", "2", "--frames", "3", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("kv_f32 x 1: median"))
    for figure in ("over 2 rounds", "MAD", "least", "p99", "over 6 frames", "first call", "outlier"):
        assert figure in line
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@needs_git
def test_a_revision_runs_its_own_code_in_the_same_run(tmp_path):
    result = bench(
        "compare", "kv_f32@HEAD", "kv_f32", *TINY, "-t", "1", "--rounds", "2", "--frames", "3",
        "--markdown", "pr.md", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 3, result.stderr  # two rounds decide nothing
    assert "kv_f32 x 1 beside kv_f32@HEAD x 1: undecided" in result.stdout
    assert "| kv_f32 x 1 |" in (tmp_path / "pr.md").read_text()
    records = read_records(only_run(tmp_path) / "records.jsonl")
    timed = [record for record in records if record.phase == "timed"]
    first = dict.fromkeys(r.variant for r in timed if r.round == 0)  # what was disturbed stands there twice
    assert list(first) == ["kv_f32@HEAD", "kv_f32", "kv_f32@HEAD (again)"]
    assert {r.variant: len(r.revision) for r in timed} == {"kv_f32@HEAD": 40, "kv_f32": 0, "kv_f32@HEAD (again)": 40}
    (comparison,) = read_summary(only_run(tmp_path) / "summary.json").comparisons
    assert (comparison.a, comparison.b, comparison.rounds) == ("kv_f32@HEAD x 1", "kv_f32 x 1", 2)
    assert comparison.verdict == "undecided"
    assert comparison.more_rounds or comparison.too_noisy  # either more rounds would tell, or none would here
    listed = subprocess.run(["git", "worktree", "list"], cwd=OWN_TREE, capture_output=True, text=True, check=True)
    assert "trees" not in listed.stdout


@pytest.mark.slow
def test_a_slower_variant_is_exit_4_and_the_other_way_round_0(tmp_path):
    (tmp_path / "slowed.py").write_text(
        "import time\nfrom cplab.decoder import Decoder\nfrom cplab.variant import variant\n\n\n"
        "class Slow(Decoder):\n    def predict(self, *a, **k):\n        time.sleep(0.05)\n"
        "        return super().predict(*a, **k)\n\n\n"
        "@variant('slowed', format='f32')\ndef build(model, threads):\n    return Slow(model, threads, format='f32')\n"
    )
    shared = (*TINY, "-t", "1", "--rounds", "6", "--frames", "3", "--variant-file", "slowed.py", "--no-aa")
    slower = bench("compare", "kv_f32", "slowed", *shared, cwd=tmp_path)
    assert slower.returncode == 4, slower.stderr + slower.stdout
    assert "slowed x 1 beside kv_f32 x 1: slower by" in slower.stdout
    faster = bench("compare", "slowed", "kv_f32", *shared, cwd=tmp_path)
    assert faster.returncode == 0, faster.stderr + faster.stdout


@pytest.mark.slow
def test_a_comparison_with_something_wrong_is_exit_2(tmp_path):
    result = bench(
        "compare", "good", "wrong", *TINY, "-t", "1", "--rounds", "1", "--frames", "3", "--variant-file", str(ODD),
        "--no-aa", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    assert "wrong x 1: fail" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["compare", "kv_f32", "kv_f32"], "compared with itself"),
        (["compare", "kv_f32", "kv_bf61"], "did you mean kv_bf16?"),
        (["compare", "taken", "kv_bf16"], "taken is a file"),
        (["compare", "taken", "taken"], "not JSON"),
        (["compare", "kv_f32", "kv_bf16", "--threshold", "much"], "a share is wanted"),
        (["compare", "kv_f32"], "'b'"),
        (["sweep", "--order", "sorted"], "order"),
        (["sweep", "--soak", "0"], "soak"),
        (["sweep", "--resume"], "nothing to resume"),
        pytest.param(["sweep", "--since", "no-such-branch"], "no revision", marks=needs_git),
        pytest.param(["compare", "kv_f32@no-such", "kv_f32"], "no-such: no revision", marks=needs_git),
    ],
)
def test_wrong_use_is_one_line_and_exit_1(tmp_path, arguments, expected):
    (tmp_path / "taken").write_text("a file that is no run")
    result = bench(*arguments, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert expected in lines[0]
    assert not list(tmp_path.glob("reports"))
