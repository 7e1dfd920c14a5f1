"""A sweep from end to end on the tiny model: what survives, what is written, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pyperf
import pytest
from bench_command import bench

from bench.records import read_records, read_summary

ODD = Path(__file__).parent / "odd_variants.py"


def only_run(folder):
    runs = [path for path in folder.glob("reports/runs/*/*") if not path.name.startswith(".")]
    assert len(runs) == 1
    return runs[0]


@pytest.fixture(scope="module")
def odd_sweep(tmp_path_factory):
    """Every odd variant and a good one, two rounds."""
    folder = tmp_path_factory.mktemp("odd")
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "2", "--frames", "3", "--timeout", "60",
        "--no-talker",
        "--variant-file", str(ODD), "--variants", "segfaults,hangs,raises,unavailable,wrong,good", cwd=folder,
    )  # fmt: skip
    return result, only_run(folder)


@pytest.mark.slow
def test_a_dying_variant_costs_its_own_cell_only(odd_sweep):
    result, folder = odd_sweep
    assert result.returncode == 2, result.stderr
    cells = {cell.variant: cell for cell in read_summary(folder / "summary.json").cells}
    assert {name: cell.gate for name, cell in cells.items()} == {
        "segfaults": "crash",
        "hangs": "crash",
        "raises": "crash",
        "unavailable": "skip",
        "wrong": "fail",
        "good": "pass",
    }, cells["good"].gate_detail
    assert "SIGSEGV" in cells["segfaults"].gate_detail
    assert "60 s" in cells["hangs"].gate_detail
    assert "a bug of its author" in cells["raises"].gate_detail
    assert "pip install" in cells["unavailable"].reason
    assert cells["wrong"].gate_detail.startswith("codes: frame 0, pass 0")
    assert cells["good"].rounds == 2
    assert cells["good"].cp_ms is not None
    assert all(cell.cp_ms is None for name, cell in cells.items() if name != "good")


@pytest.mark.slow
def test_what_a_sweep_writes_can_be_read(odd_sweep):
    _, folder = odd_sweep
    names = {"plan.json", "machine.json", "records.jsonl", "summary.json", "roofline.json", "pyperf.json"}
    names |= {"profile.json", "report.html", "report.md"}
    assert {path.name for path in folder.iterdir()} == names
    records = read_records(folder / "records.jsonl")
    timed = [record for record in records if record.phase == "timed"]
    assert all(len(record.samples_ns) == 3 for record in timed)
    values = 3 * len(timed)
    timed = [record for record in timed if not record.facts.get("again_for")]  # a disturbed machine makes some again
    assert [record.round for record in timed] == [0, 1]
    # Every timed call of a round has a golden frame of its own, and the next round takes others.
    frames = [index for record in timed for index in record.frame_ids]
    assert len(set(frames)) == 6
    suite = pyperf.BenchmarkSuite.load(str(folder / "pyperf.json"))
    assert suite.get_benchmark_names() == ["good[threads=1,model=synthetic:tiny]"]
    assert suite.get_benchmarks()[0].get_nvalue() == values
    again = bench("report", str(folder), "--markdown", str(folder / "again.md"), cwd=folder)
    assert again.returncode == 0
    assert (folder / "again.md").read_text() == (folder / "report.md").read_text()
    (folder / "again.md").unlink()


@pytest.mark.slow
def test_a_sweep_reports_its_roof_and_its_pass_times(odd_sweep):
    _, folder = odd_sweep
    cell = next(c for c in read_summary(folder / "summary.json").cells if c.variant == "good")
    assert len(cell.code_ms) == cell.passes_per_frame == 2
    assert cell.roof_ms is not None
    assert cell.bytes_per_frame == 2 * 2 * (2 * (64 * 256 + 64 * 128 + 3 * 64 * 192) + 256 * 64)


@pytest.mark.slow
def test_a_variant_that_dies_between_timed_frames_costs_its_own_cell_only(tmp_path):
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "3", "--frames", "20",
        "--variant-file", str(ODD), "--variants", "killed_late,good,segfaults_late", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    cells = {cell.variant: cell for cell in read_summary(only_run(tmp_path) / "summary.json").cells}
    assert {name: cell.gate for name, cell in cells.items()} == {
        "killed_late": "crash", "good": "pass", "segfaults_late": "crash"
    }  # fmt: skip
    assert cells["killed_late"].gate_detail == "round 0: killed by SIGKILL"
    assert "round 0: killed by SIGSEGV" in cells["segfaults_late"].gate_detail
    assert cells["killed_late"].cp_ms is cells["segfaults_late"].cp_ms is None
    records = read_records(only_run(tmp_path) / "records.jsonl")
    timed = [record for record in records if (record.variant, record.phase) == ("good", "timed")]
    made_again = sum("again_for" in record.facts for record in timed)  # on a disturbed machine
    assert (cells["good"].rounds, cells["good"].frames) == (3, 20 * (3 + made_again))


@pytest.mark.slow
def test_a_worker_killed_from_outside_in_the_middle_of_a_sweep_costs_its_own_cell_only(tmp_path):
    names = ["kv_f32", "kv_bf16", "kv_f16"]
    command = [sys.executable, "-m", "bench", "sweep", "--model", "synthetic:tiny", "--threads", "1"]
    command += ["--rounds", "4", "--frames", "3", "--variants", ",".join(names)]
    command += ["--no-talker"]  # whose worker is a child too, and no cell
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 240
    killed = False
    while not killed and time.monotonic() < deadline and process.poll() is None:
        files = list(tmp_path.glob("reports/runs/*/.*/records.jsonl"))
        timed = files[0].read_text().count('"phase": "timed"') if files else 0
        # The first round is over, so that the victim has times already, which are to be taken away.
        workers = psutil.Process(process.pid).children() if timed >= len(names) else []
        for worker in workers:
            worker.kill()
            killed = True
        time.sleep(0.01)
    process.communicate(timeout=240)
    assert killed
    assert process.returncode == 2
    folder = only_run(tmp_path)
    cells = read_summary(folder / "summary.json").cells
    (lost,) = [cell for cell in cells if cell.gate != "pass"]
    assert lost.gate == "crash"
    assert "killed by SIGKILL" in lost.gate_detail
    assert lost.cp_ms is None
    assert (
        sum(r.variant == lost.variant and r.gate.status == "pass" for r in read_records(folder / "records.jsonl")) >= 2
    )
    assert [cell.rounds for cell in cells if cell is not lost] == [4, 4]
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_wrong_codes_in_a_timed_call_take_the_times_away(tmp_path):
    # Right for calls with a trace, and wrong in the eleventh without: the gate makes fewer of those, a round more.
    (tmp_path / "late.py").write_text(ODD.read_text())
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "1", "--frames", "20",
        "--variant-file", "late.py", "--variants", "late", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    cell = read_summary(only_run(tmp_path) / "summary.json").cells[0]
    assert cell.gate == "fail"
    assert cell.cp_ms is None
    assert "other codes" in cell.gate_detail


@pytest.mark.slow
def test_a_quantised_variant_is_timed_and_never_called_exact(tmp_path):
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "2", "--frames", "3",
        "--variant-file", str(ODD), "--variants", "quantised,good", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    folder = only_run(tmp_path)
    cells = {cell.variant: cell for cell in read_summary(folder / "summary.json").cells}
    quantised = cells["quantised"]
    assert (quantised.gate, quantised.arithmetic, quantised.rounds) == ("pass", "q8_0", 2)
    assert quantised.cp_ms is not None
    assert quantised.lossy_weights > 0
    assert (quantised.exact, cells["good"].exact) == (False, True)
    assert 0.5 < quantised.fidelity.teacher_forced <= 1
    # Timed calls ran frames of the rounded model's golden, 33 of them, and gave its codes.
    records = [r for r in read_records(folder / "records.jsonl") if r.variant == "quantised" and r.phase == "timed"]
    assert all(r.gate.status == "pass" for r in records)
    assert [r.frame_ids for r in records] == [[4, 5, 6], [7, 8, 9]]  # one made on the spot would hold six frames
    assert "Fastest exact: good" in (folder / "report.md").read_text()


@pytest.mark.slow
def test_interrupting_keeps_what_was_measured(tmp_path):
    command = [sys.executable, "-m", "bench", "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "500"]
    command += ["--frames", "3", "--variants", "kv_f32", "--no-talker"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A shell's background jobs, which we may be one of, do not hear Ctrl-C, nor do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        files = list(tmp_path.glob("reports/runs/*/.*/records.jsonl"))
        if files and len(files[0].read_text().splitlines()) >= 4:
            break
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert process.returncode == 1
    summary = read_summary(only_run(tmp_path) / "summary.json")
    assert summary.run.interrupted
    assert summary.cells[0].rounds >= 2
    assert (only_run(tmp_path) / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sweep", "--model", "nowhere.gguf"], "nowhere.gguf: no such file"),
        (["sweep", "--model", "synthetic:06b"], "there are synthetic:0.6b"),
        (["sweep", "--variants", "kv_bf61"], "did you mean kv_bf16?"),
        (["sweep", "--threads", "0"], "threads must be at least 1"),
        (["sweep", "--threads", "-1"], "threads"),
        (["sweep", "--threads", "two"], "positive numbers"),
        (["sweep", "--threads", "1-99999999"], "at most 1024"),
        (["sweep", "--variants", ","], "no name in it"),
        (["sweep", "--rounds", "0"], "rounds"),
        (["sweep", "--out", "taken", "--model", "synthetic:tiny"], "--out"),
        (["sweep", "--bogus"], "--bogus"),
        (["run"], "'variant'"),
        (["report", "empty"], "summary.json"),
        (["gate", "--golden", "taken", "--model", "synthetic:tiny"], "taken: not a golden file"),
        (["gate", "--variant-file", "nothing.py"], "nothing.py: not a Python file"),
    ],
)
def test_wrong_use_is_one_line_and_exit_1(tmp_path, arguments, expected):
    (tmp_path / "taken").write_text("a file where a folder is wanted")
    (tmp_path / "empty").mkdir()
    result = bench(*arguments, cwd=tmp_path)
    assert result.returncode == 1, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert expected in lines[0]
    assert not list(tmp_path.glob("reports"))


@pytest.mark.slow
def test_gate_writes_json_and_a_markdown_table(tmp_path):
    result = bench(
        "gate", "--model", "synthetic:tiny", "--variants", "kv_bf16,numpy_f32", "--threads", "1", "--frames", "3",
        "--json", "gate.jsonl", "--summary", "summary.md", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "6/6 codes match (3/3 frames)" in result.stdout
    records = [json.loads(line) for line in (tmp_path / "gate.jsonl").read_text().splitlines()]
    assert [record["gate"]["status"] for record in records] == ["pass", "pass"]
    assert "| kv_bf16 | 1 | pass | 6/6 codes match (3/3 frames) | 15 passed |" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_more_threads_than_cpus_is_marked(tmp_path):
    count = 2 * (os.cpu_count() or 1)
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--variants", "kv_f32", "--threads", str(count), "--rounds", "1",
        "--frames", "3", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert read_summary(only_run(tmp_path) / "summary.json").cells[0].oversubscribed
