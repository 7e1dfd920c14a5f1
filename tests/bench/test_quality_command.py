"""``python -m bench quality`` from end to end on the tiny model: files, warnings, exit codes, engines that die."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench_command import bench

from bench.quality.run import usual_variants
from bench.records import UnreadableRecordError
from bench.records.quality_reading import read_quality

ODD = Path(__file__).parent / "odd_variants.py"
EXAMPLE_RUN = Path(__file__).parents[2] / "reports" / "examples" / "xeon-2c"


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """The usual variants and an exact one, with everything but recorded codes."""
    folder = tmp_path_factory.mktemp("quality")
    result = bench(
        "quality", "--model", "synthetic:tiny", "--variants", "kv_q8_0,kv_q4_0,kv_bf16", "--frames", "6",
        "--rollout", "55", "-t", "1", cwd=folder, timeout=500,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (file,) = folder.glob("reports/quality/*/*/quality.json")
    return result, file


@pytest.mark.slow
def test_it_writes_what_it_measured(measured):
    result, file = measured
    found = read_quality(file)
    assert [cell.status for cell in found.cells] == ["pass"] * 3
    cells = {cell.variant: cell for cell in found.cells}
    assert cells["kv_bf16"].exact
    assert cells["kv_bf16"].naive is None
    assert cells["kv_bf16"].rollout.first_difference is None
    assert not cells["kv_q8_0"].exact
    assert cells["kv_q8_0"].naive.passed
    assert cells["kv_q4_0"].teacher_forced.rmse.value > cells["kv_q8_0"].teacher_forced.rmse.value > 0
    assert found.float_rollout.own.frames == 55
    assert found.facts.golden_frames == 6
    assert found.floor is not None
    assert 0.5 < found.floor.least <= cells["kv_q8_0"].teacher_forced.agreement.hi
    assert str(file.with_suffix("").name) in result.stdout


@pytest.mark.slow
def test_the_first_line_says_that_seeded_weights_are_no_speech(measured):
    result, file = measured
    assert "about arithmetic, not about speech" in file.with_suffix(".md").read_text(encoding="utf-8").splitlines()[0]
    page = file.with_suffix(".html").read_text(encoding="utf-8")
    assert page.index("about arithmetic, not about speech") < page.index("<h1>")
    tables = result.stdout[result.stdout.index("\n\n") :].strip()
    assert "about arithmetic" in tables.splitlines()[0]


@pytest.mark.slow
def test_pages_are_written_again_and_another_models_times_are_refused(measured, tmp_path):
    _, file = measured
    page = tmp_path / "again.html"
    again = bench("quality-report", str(file), "--html", str(page), cwd=tmp_path, timeout=500)
    assert again.returncode == 0, again.stderr
    assert page.read_bytes() == file.with_suffix(".html").read_bytes()
    other = bench("quality-report", str(file), "--run", str(EXAMPLE_RUN), cwd=tmp_path, timeout=500)
    assert other.returncode == 1
    assert "whose weights are not those of synthetic:tiny" in " ".join(other.stderr.split())


@pytest.mark.slow
def test_an_engine_that_dies_costs_its_own_figures_only(tmp_path):
    result = bench(
        "quality", "--model", "synthetic:tiny", "--variant-file", str(ODD), "--variants",
        "segfaults,unavailable,wrong,raises,kv_q8_0", "--frames", "3", "--rollout", "0", "-t", "1",
        cwd=tmp_path, timeout=500,
    )  # fmt: skip
    assert result.returncode == 2, result.stderr
    (file,) = tmp_path.glob("reports/quality/*/*/quality.json")
    cells = {cell.variant: cell for cell in read_quality(file).cells}
    assert {name: cell.status for name, cell in cells.items()} == {
        "segfaults": "crash",
        "unavailable": "skip",
        "wrong": "fail",
        "raises": "crash",
        "kv_q8_0": "pass",
    }
    assert "killed by SIGSEGV" in cells["segfaults"].reason
    assert "pip install" in cells["unavailable"].reason
    assert "a bug of its author" in cells["raises"].reason
    assert cells["wrong"].gate.status == "fail"
    outcomes = [line.split(":")[0].split() for line in result.stdout.splitlines() if " x 1: " in line]
    assert outcomes == [[cell.status, name, "x", "1"] for name, cell in cells.items()], "each once, as it was measured"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "synthetic:none"], "synthetic:none"),
        (["--hidden", "h.npy"], "--hidden goes with --codes"),
        (["--talker", "t.gguf", "--rollout", "0"], "--talker and --rollout 0"),
        (["--variants", "kv_q9"], "no variant 'kv_q9'"),
        (["--model", "synthetic:tiny", "--codes", "none.npy", "--rollout", "0"], "none.npy"),
        (["--run", "none"], "none: No such file or directory"),
        (["--codes", "codes.npy", "--decoder", "none"], "none: no config.json"),
    ],
)
def test_wrong_use_is_told_in_a_line(options, told, tmp_path):
    result = bench("quality", *options, cwd=tmp_path, timeout=500)
    assert result.returncode == 1
    assert told in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.glob("reports/quality/*/*"))


def test_the_usual_variants_are_one_of_each_quantised_law():
    usual = usual_variants()
    laws = [one.arithmetic for one in usual]
    assert sorted(laws) == sorted(set(laws))
    assert {"q8_0", "q6_k", "q5_0", "q4_0"} <= set(laws)
    assert "f32" not in laws
    assert {one.name for one in usual} >= {"kv_q8_0", "kv_q6_k", "kv_q5_0", "kv_q4_0"}


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "cplab.quality/9"}', '{"schema": "cplab.quality/1"}'])
def test_what_is_no_quality_file_is_refused_in_a_line(tmp_path, text):
    file = tmp_path / "quality.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UnreadableRecordError, match=r"quality\.json"):
        read_quality(file)
