"""What a killed run left can be read, gets a summary and its name, and can be gone on with."""

from __future__ import annotations

import os

import pytest
from made_up_runs_on_disk import MACHINE, finished, plan, records

import reports
from bench.errors import UnfinishedRunError
from bench.records import read_records, read_summary
from bench.run_folder import RunFolder
from bench.unfinished import newest_unfinished, recover

DEAD = 999_999_999


@pytest.fixture
def killed(tmp_path):
    """A run killed in its third round, while it wrote half a line."""

    def make(name="20010203T040506Z-abcdef012", made=None, planned=True, pid=DEAD):
        made = records(rounds=3)[:-1] if made is None else made
        run = RunFolder(tmp_path / "machine" / name)
        for one in made:
            run.append(one)
        run.write_machine(MACHINE)
        if planned:
            run.write_plan(plan())
        run._file.raw.write(b'{"schema": "cplab.record/1", "vari')
        run._file.close()
        return run.path.rename(run.path.with_name(f".{name}.{pid}"))

    return make


def test_a_killed_run_gets_its_summary_its_name_and_a_report(killed):
    folder = recover(killed())
    assert folder.name == "20010203T040506Z-abcdef012"
    summary = read_summary(folder / "summary.json")
    assert summary.run.interrupted
    assert summary.machine == MACHINE
    assert {cell.variant: cell.rounds for cell in summary.cells} == {"recompute_f16": 3, "kv_bf16": 2}
    assert summary.cells[1].speedup_vs_baseline.ratio == pytest.approx(5, rel=0.05)
    assert summary.cells[1].exact
    assert read_records(folder / "records.jsonl") == records(rounds=3)[:-1]  # the half line is cut off
    reports.write_markdown(folder, folder / "report.md")
    assert "interrupted" in (folder / "report.md").read_text()
    assert (folder / "pyperf.json").is_file()


def test_a_run_of_an_older_version_has_no_plan_and_can_be_read_all_the_same(killed):
    folder = recover(killed("20010203T040506Z-abcdef012-dirty", planned=False))
    summary = read_summary(folder / "summary.json")
    assert (summary.run.commit, summary.run.dirty, summary.baseline) == ("abcdef012", True, "recompute_f16")
    assert summary.model.name == "synthetic:0.6b"
    cells = {cell.variant: cell for cell in summary.cells}
    assert (cells["kv_bf16"].format, cells["kv_bf16"].tier) == ("bf16", "exact")  # as the registry knows it
    reports.write_html(folder, folder / "report.html")


def test_a_variant_that_nobody_knows_any_more_is_not_called_exact(killed):
    made = [one.model_copy(update={"variant": "gone"}) for one in records(("kv_bf16",), rounds=2)]
    summary = read_summary(recover(killed(made=made, planned=False)) / "summary.json")
    assert not summary.cells[0].exact
    assert summary.cells[0].cp_ms is not None


def test_a_run_that_still_goes_on_is_left_alone(killed):
    folder = killed(pid=os.getppid())
    with pytest.raises(UnfinishedRunError, match="still going on"):
        recover(folder)
    assert folder.is_dir()
    assert not (folder / "summary.json").exists()


def test_a_finished_run_is_left_as_it_is(tmp_path):
    folder = finished(tmp_path / "machine" / "20010203T040506Z-abcdef012")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert recover(folder) == folder
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_name_that_is_taken_is_not_overwritten(killed, tmp_path):
    first = finished(tmp_path / "machine" / "20010203T040506Z-abcdef012")
    assert recover(killed()).name == f"{first.name}-2"


def test_a_folder_without_a_record_stays(tmp_path):
    (tmp_path / "records.jsonl").write_text("")
    assert recover(tmp_path) == tmp_path
    assert recover(tmp_path / "nowhere") == tmp_path / "nowhere"


def test_the_newest_that_did_not_end_is_gone_on_with(killed, tmp_path):
    with pytest.raises(UnfinishedRunError, match="nothing to resume"):
        newest_unfinished(tmp_path, "machine")
    finished(tmp_path / "machine" / "20010209T000000Z-abcdef012")
    killed("20010201T000000Z-abcdef012")
    newest = killed("20010203T000000Z-abcdef012")
    killed("20010204T000000Z-abcdef012", planned=False)
    killed("20010205T000000Z-abcdef012", pid=os.getppid())
    assert newest_unfinished(tmp_path, "machine") == newest


def test_an_interrupted_run_can_be_gone_on_with_too(killed, tmp_path):
    interrupted = recover(killed("20010206T000000Z-abcdef012"))
    assert newest_unfinished(tmp_path, "machine") == interrupted
    run = RunFolder.reopened(interrupted, read_records(interrupted / "records.jsonl"))
    run.append(records(rounds=4)[-1])
    assert run.finish() == interrupted
    assert len(read_records(interrupted / "records.jsonl")) == len(records(rounds=3))


def test_only_one_process_takes_a_killed_run_up(killed):
    folder = killed()
    run = RunFolder.reopened(folder, [])
    assert str(os.getpid()) in run.path.name
    assert not folder.exists()


def test_a_damaged_plan_is_said_in_one_line(killed):
    folder = killed()
    (folder / "plan.json").write_text('{"schema": "cplab.plan/9"}')
    with pytest.raises(UnfinishedRunError, match=r"plan\.json: schema"):
        recover(folder)
