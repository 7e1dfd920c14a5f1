"""pyperf's own tools read the samples."""

import subprocess
import sys

import pyperf
import pytest
from test_summary import MS, failed, record, timed

from bench.pyperf_suite import write_suite

RECORDS = [
    record(),
    timed([41, 43], round=1, order=5, started_utc="2026-01-31T23:59:59Z", warmup_ns=[90 * MS, 45 * MS], load_s=1.5),
    timed([40, 42], round=0, order=2, started_utc="2026-01-31T23:58:59.5+00:00", oversubscribed=True),
    timed([81, 80], "recompute_f16", 1, started_utc="2026-01-31T23:57:00"),
    record("kv_f16"),  # gated, never timed
    timed([30], "kv_q8_0", 2, round=0),
    failed(variant="kv_q8_0", threads=2, round=1),
]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "pyperf.json"
    assert write_suite(RECORDS, path) == 2
    return path


def test_one_benchmark_a_cell_that_has_samples(path):
    suite = pyperf.BenchmarkSuite.load(str(path))
    assert suite.get_benchmark_names() == [
        "recompute_f16[threads=1,model=synthetic:0.6b]",
        "kv_bf16[threads=2,model=synthetic:0.6b]",
    ]


def test_one_run_a_round_in_seconds_with_its_warmups(path):
    benchmark = pyperf.BenchmarkSuite.load(str(path)).get_benchmark("kv_bf16[threads=2,model=synthetic:0.6b]")
    first, second = benchmark.get_runs()
    assert (first.values, second.values) == ((0.040, 0.042), (0.041, 0.043))
    assert (first.warmups, second.warmups) == ((), ((1, 0.090), (1, 0.045)))
    assert benchmark.median() == pytest.approx(0.0415)
    assert (benchmark.get_unit(), benchmark.get_loops()) == ("second", 1)


def test_metadata_tells_what_the_run_was(path):
    benchmark = pyperf.BenchmarkSuite.load(str(path)).get_benchmark("kv_bf16[threads=2,model=synthetic:0.6b]")
    first, second = (run.get_metadata() for run in benchmark.get_runs())
    assert second["date"] == "2026-01-31T23:59:59+00:00"
    assert (second["cplab_round"], second["cplab_order"], second["cplab_threads"]) == (1, 5, 2)
    assert (second["cplab_variant"], second["cplab_model"]) == ("kv_bf16", "synthetic:0.6b")
    assert (first["cplab_oversubscribed"], second["cplab_oversubscribed"]) == ("yes", "no")
    assert second["cplab_load_s"] == 1.5
    assert "cplab_load_s" not in first
    # The process that writes the file is not the one that measured.
    assert not {"hostname", "python_executable", "cpu_count"} & set(second)


def pyperf_says(*arguments):
    result = subprocess.run(
        [sys.executable, "-m", "pyperf", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert not result.stderr
    return result.stdout


@pytest.mark.parametrize("arguments", [["show"], ["stats"], ["show", "--metadata", "--dump"], ["hist"], ["check"]])
def test_pyperfs_tools_read_it(path, arguments):
    assert "kv_bf16[threads=2,model=synthetic:0.6b]" in pyperf_says(*arguments, path)


def test_pyperf_compares_two_runs(path, tmp_path):
    slower = [one.model_copy(update={"samples_ns": [2 * ns for ns in one.samples_ns]}) for one in RECORDS]
    write_suite(slower, tmp_path / "slower.json")
    assert "2.00x slower" in pyperf_says("compare_to", path, tmp_path / "slower.json")


@pytest.mark.parametrize("started", ["", "yesterday", "2026-13-01T00:00:00Z"])
def test_a_date_that_pyperf_could_not_read_is_left_out(tmp_path, started):
    write_suite([timed([1], started_utc=started)], tmp_path / "pyperf.json")
    (run,) = pyperf.Benchmark.load(str(tmp_path / "pyperf.json")).get_runs()
    assert "date" not in run.get_metadata()


def test_a_date_without_an_offset_is_utc(path):
    benchmark = pyperf.BenchmarkSuite.load(str(path)).get_benchmark("recompute_f16[threads=1,model=synthetic:0.6b]")
    assert benchmark.get_metadata()["date"] == "2026-01-31T23:57:00+00:00"


def test_a_model_whose_name_is_odd(tmp_path):
    write_suite([timed([1], model="a\nb\udc80.gguf")], tmp_path / "pyperf.json")
    assert pyperf.Benchmark.load(str(tmp_path / "pyperf.json")).get_name() == "kv_bf16[threads=2,model=a b?.gguf]"


@pytest.mark.parametrize("records", [[], [record()], [timed([1]), failed(round=1)]])
def test_without_samples_no_file_is_written(tmp_path, records):
    assert write_suite(records, tmp_path / "pyperf.json") == 0
    assert not list(tmp_path.iterdir())


def test_a_suite_is_replaced_whole_or_not_at_all(path, monkeypatch):
    before = path.read_bytes()

    def stop_half_way(_, file):
        file.write('{"half": ')
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pyperf.BenchmarkSuite, "dump", stop_half_way)
    with pytest.raises(OSError, match="No space"):
        write_suite(RECORDS, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
