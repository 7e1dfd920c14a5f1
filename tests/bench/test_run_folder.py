"""A run's folder: never half, never overwriting, and every failure one line."""

import errno
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyperf
import pytest
from test_summary import failed, record, summary, timed

from bench import run_folder
from bench.errors import OutputError
from bench.records import read_records, read_summary
from bench.run_folder import RunFolder, run_folder_path
from cplab.errors import CplabError

RECORDS = [record(), timed([40, 42]), timed([41], round=1), failed(variant="kv_q8_0")]


@pytest.fixture
def final(tmp_path):
    return tmp_path / "runs" / "made-up-2c" / "20260131T235959Z-abcdef012"


def refusing(monkeypatch, owner, name, code=errno.EROFS, when=lambda *_: True):
    """Let a call fail as a file system would; permission bits would not stop a privileged user."""
    original = getattr(owner, name)

    def call(*args, **kwargs):
        if when(*args):
            raise OSError(code, os.strerror(code))
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(
    ("commit", "dirty", "name"),
    [
        ("abcdef012", False, "20260131T235959Z-abcdef012"),
        ("abcdef012", True, "20260131T235959Z-abcdef012-dirty"),
        ("nogit", False, "20260131T235959Z-nogit"),
    ],
)
def test_the_name_tells_time_and_commit(commit, dirty, name):
    started = datetime(2026, 2, 1, 1, 59, 59, 999_999, timezone(timedelta(hours=2)))
    assert run_folder_path("m-2c", started, commit, dirty) == Path("reports/runs/m-2c") / name
    assert run_folder_path("m-2c", started, commit, dirty, Path("elsewhere")) == Path("elsewhere/m-2c") / name


def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="time zone"):
        run_folder_path("m-2c", datetime(2026, 1, 31), "nogit", False)


def test_everything_reads_back(final):
    digest = summary(RECORDS)
    with RunFolder(final) as folder:
        for one in RECORDS:
            folder.append(one)
        folder.write_machine({"cpu": {"model": "Imaginary CPU 9000"}})
        folder.write_summary(digest)
        folder.write_pyperf()
        assert not final.exists()
        assert folder.path.parent == final.parent
        assert folder.path.name.startswith(".")
        assert folder.records == RECORDS
    assert folder.path == final
    assert sorted(path.name for path in final.iterdir()) == [
        "machine.json",
        "pyperf.json",
        "records.jsonl",
        "summary.json",
    ]
    assert read_records(final / "records.jsonl") == RECORDS
    assert read_summary(final / "summary.json") == digest
    machine = json.loads((final / "machine.json").read_text())
    assert machine == {"schema": "cplab.machine/1", "cpu": {"model": "Imaginary CPU 9000"}}
    assert pyperf.Benchmark.load(str(final / "pyperf.json")).get_nrun() == 2
    assert list(final.parent.iterdir()) == [final]


def test_the_folder_has_the_rights_that_any_folder_gets(final):
    with RunFolder(final) as folder:
        folder.append(record())
    (final.parent / "plain").mkdir()
    assert final.stat().st_mode == (final.parent / "plain").stat().st_mode


def test_a_record_is_on_disk_as_soon_as_it_is_appended(final):
    folder = RunFolder(final)
    for number, one in enumerate(RECORDS, start=1):
        folder.append(one)
        assert read_records(folder.path / "records.jsonl") == RECORDS[:number]


def test_a_killed_process_keeps_what_it_measured(final):
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom test_summary import timed\n"
        "from bench.run_folder import RunFolder\nfolder = RunFolder(Path(sys.argv[1]))\n"
        "folder.append(timed([1]))\nfolder.append(timed([2], round=1))\nos._exit(9)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(run_folder.__file__).parents[1])])
    result = subprocess.run(
        [sys.executable, "-c", code, str(final)], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert result.returncode == 9
    (left,) = final.parent.iterdir()
    assert left.name.startswith(".")
    assert read_records(left / "records.jsonl") == [timed([1]), timed([2], round=1)]


def test_an_interrupted_run_keeps_its_name_and_records(final):
    def interrupted():
        with RunFolder(final) as folder:
            folder.append(RECORDS[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_records(final / "records.jsonl") == RECORDS[:1]


def test_a_run_without_records_leaves_nothing(final):
    with RunFolder(final) as folder:
        folder.write_machine({})
    assert not final.parent.exists()


def test_names_that_are_taken_get_a_number(final):
    final.mkdir(parents=True)  # empty: a rename would silently replace it
    for expected in (f"{final.name}-2", f"{final.name}-3"):
        with RunFolder(final) as folder:
            folder.append(record())
        assert folder.path.name == expected
    assert not list(final.iterdir())


def test_a_file_of_that_name_is_not_overwritten(final):
    final.parent.mkdir(parents=True)
    final.write_text("precious")
    with RunFolder(final) as folder:
        folder.append(record())
    assert final.read_text() == "precious"
    assert folder.path.name == f"{final.name}-2"


def test_two_runs_at_once_do_not_share_a_folder(final):
    first, second = RunFolder(final), RunFolder(final)
    first.append(timed([1]))
    second.append(timed([2]))
    assert first.finish() == final
    assert second.finish() == final.with_name(f"{final.name}-2")
    assert read_records(final / "records.jsonl") == [timed([1])]


def test_finishing_twice_changes_nothing_and_files_can_be_added_afterwards(final):
    folder = RunFolder(final)
    folder.append(record())
    assert folder.finish() == folder.finish() == final
    folder.discard()
    folder.write_summary(summary([record()]))
    assert read_summary(final / "summary.json").cells[0].gate == "pass"
    assert list(final.parent.iterdir()) == [final]


def test_odd_text_keeps_one_line_a_record(final):
    odd = record(gate=record().gate.model_copy(update={"detail": "a\u2028b\x85c\nd é \x00"}), facts={"file": "x\udc80"})
    with RunFolder(final) as folder:
        folder.append(odd)
        folder.append(record())
        folder.write_machine({"file": "x\udc80"})
    first, second = read_records(final / "records.jsonl")
    assert first == odd.model_copy(update={"facts": {"file": "x?"}})
    assert second == record()
    assert json.loads((final / "machine.json").read_text())["file"] == "x?"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.ENOTDIR])
def test_an_unwritable_place_is_found_before_anything_is_measured(final, monkeypatch, code):
    refusing(monkeypatch, Path, "mkdir", code)
    with pytest.raises(OutputError) as caught:
        RunFolder(final)
    message = str(caught.value)
    assert isinstance(caught.value, CplabError)
    assert "\n" not in message
    assert str(final) in message
    assert os.strerror(code) in message
    assert "--out" in message
    assert ("free some space" in message) == (code == errno.ENOSPC)


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--out"):
        RunFolder(tmp_path / "file" / "runs" / "name")


@pytest.mark.parametrize("name", ["write_bytes", "open"])
def test_a_full_disk_is_found_at_creation_and_nothing_is_left(final, monkeypatch, name):
    with monkeypatch.context() as patched:
        refusing(patched, Path, name, errno.ENOSPC)
        with pytest.raises(OutputError, match="free some space"):
            RunFolder(final)
    assert not list(final.parent.iterdir())


class _FullDisk:
    """A file on a disk that takes a few more bytes and then no more."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.file.write(data[: self.room])
        self.room -= written
        return written

    def __getattr__(self, name):
        return getattr(self.file, name)


@pytest.mark.parametrize("room", [0, 10])
def test_a_disk_that_fills_up_keeps_the_lines_before(final, room):
    folder = RunFolder(final)
    folder.append(RECORDS[0])
    folder._file.raw = _FullDisk(folder._file.raw, room)
    with pytest.raises(OutputError, match="the records so far stay there; free some space") as caught:
        folder.append(RECORDS[1])
    assert "\n" not in str(caught.value)
    assert read_records(folder.path / "records.jsonl") == RECORDS[:1] == folder.records
    assert folder.finish() == final


def test_a_json_that_cannot_be_written_leaves_the_old_one(final, monkeypatch):
    folder = RunFolder(final)
    folder.write_machine({"version": 1})
    for call in (lambda: folder.write_machine({"version": 2}), lambda: folder.write_summary(summary([record()]))):
        with monkeypatch.context() as patched:
            refusing(patched, Path, "write_bytes", errno.ENOSPC)
            with pytest.raises(OutputError, match="No space left"):
                call()
    assert json.loads((folder.path / "machine.json").read_text())["version"] == 1
    assert sorted(path.name for path in folder.path.iterdir()) == ["machine.json", "records.jsonl"]


def test_a_suite_that_cannot_be_written(final, monkeypatch):
    folder = RunFolder(final)
    refusing(monkeypatch, pyperf.BenchmarkSuite, "dump", errno.EDQUOT)
    with pytest.raises(OutputError, match="free some space"):
        folder.write_pyperf(RECORDS)


def test_a_folder_that_cannot_be_renamed_says_where_the_results_are(final, monkeypatch):
    folder = RunFolder(final)
    folder.append(record())
    refusing(monkeypatch, Path, "rename", errno.EACCES)
    with pytest.raises(OutputError) as caught:
        folder.finish()
    assert str(folder.path) in str(caught.value)
    assert read_records(folder.path / "records.jsonl") == [record()]
    assert not final.exists()


def test_results_are_named_after_utc():
    assert run_folder_path("m", datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC), "c", False).name == "20260131T235959Z-c"
