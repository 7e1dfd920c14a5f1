"""Engines of one's own in a sweep: measured beside the lab's, whatever they are called, and no crash spreads."""

from __future__ import annotations

import html
import sys
from pathlib import Path

import pytest
from bench_command import bench

sys.path.insert(0, str(Path(__file__).parent.parent / "cplab"))
from engine_building import library, needs_compiler, program

from bench.records import read_summary
from cplab.external import EXAMPLE, HEADER, shipped_text

#: A folder's name that HTML, Markdown, rich and matplotlib would each make something of.
ODD = "a&b <i>$x_1$ [red]"


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    """A folder of engines, right and wrong."""
    folder = tmp_path_factory.mktemp("engines").resolve()
    (folder / ODD).mkdir()
    library(folder / ODD)
    program(folder)
    for fault in ("no_logits", "null_load", "no_predict", "segfault", "hang", "wrong", "late_segfault"):
        library(folder, fault)
    return folder


@pytest.fixture(scope="module")
def swept(engines):
    """One sweep over all of them and one of the lab's."""
    names = [
        "kv_f32", f"external:./{ODD}/libright.so?format=f32", "external:./engine", "external:./libno_logits.so",
        "external:./libnull_load.so", "external:./libno_predict.so", "external:./libsegfault.so",
        "external:./libhang.so", "external:./libwrong.so", "external:./liblate_segfault.so",
    ]  # fmt: skip
    result = bench(
        "sweep", "--model", "synthetic:tiny", "--threads", "1", "--rounds", "2", "--frames", "20", "--timeout", "20",
        "--variants", ",".join(names), cwd=engines,
    )  # fmt: skip
    (folder,) = [p for p in engines.glob("reports/runs/*/*") if not p.name.startswith(".")]
    return result, folder, {cell.variant: cell for cell in read_summary(folder / "summary.json").cells}


@needs_compiler
@pytest.mark.slow
def test_right_engines_are_measured_and_wrong_ones_cost_their_own_cells_only(swept):
    result, _, cells = swept
    assert result.returncode == 2, result.stderr
    passed = [name for name, cell in cells.items() if cell.gate == "pass"]
    assert passed == [
        "kv_f32",
        f"external:./{ODD}/libright.so?format=f32",
        "external:./engine",
        "external:./libno_logits.so",
    ]
    assert all(cells[name].rounds == 2 and cells[name].cp_ms is not None for name in passed)
    assert all(cell.cp_ms is None for name, cell in cells.items() if name not in passed)
    assert [cells[name].exact for name in passed] == [True, False, False, False]
    assert cells["external:./libno_logits.so"].fidelity.teacher_forced is None
    assert "free-running codes only" in cells["external:./libno_logits.so"].engine_note


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "gate", "told"),
    [
        ("null_load", "fail", "cp_load returned NULL"),
        ("no_predict", "fail", "has no function cp_predict"),
        ("segfault", "crash", "killed by SIGSEGV"),
        ("hang", "crash", "no result within 20 s"),
        ("wrong", "fail", "codes: frame 0, pass 1: code"),
        ("late_segfault", "crash", "round 0: killed by SIGSEGV"),
    ],
)
def test_what_went_wrong_is_one_line(swept, fault, gate, told):
    result, _, cells = swept
    cell = cells[f"external:./lib{fault}.so"]
    assert cell.gate == gate
    assert told in cell.gate_detail
    assert "\n" not in cell.gate_detail
    assert f"external:./lib{fault}.so x 1: {gate}: " in result.stdout


@needs_compiler
@pytest.mark.slow
def test_gigabytes_a_second_are_told_where_the_format_was(swept):
    _, _, cells = swept
    assert cells[f"external:./{ODD}/libright.so?format=f32"].gbps > 0
    assert cells["external:./engine"].gbps is None


@needs_compiler
@pytest.mark.slow
def test_an_odd_name_is_text_wherever_it_stands(swept):
    result, folder, _ = swept
    name = f"external:./{ODD}/libright.so?format=f32"
    page = (folder / "report.html").read_text()
    assert html.escape(name, quote=False) in page
    assert "<i>$x_1$" not in page
    assert "<i>$x_1$" not in (folder / "report.md").read_text().partition("```")[0]
    assert name in "".join(result.stdout.split("\n")) or f"{name} x 1" in result.stdout


@needs_compiler
@pytest.mark.slow
def test_gate_says_what_it_could_not_judge(engines):
    result = bench(
        "gate", "--model", "synthetic:tiny", "--threads", "1", "--frames", "3",
        "--variants", "external:./libno_logits.so", cwd=engines,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "6/6 codes match (3/3 frames); judged by free-running codes only" in result.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("external:./nowhere.so", "nowhere.so: no such library"),
        ("external:./nowhere", "no such program"),
        ("external:", "a library or a command is wanted"),
        ("external:./nowhere.so?tier=any", "tier=any"),
    ],
)
def test_an_engine_that_is_not_there_is_one_line_and_exit_1(tmp_path, name, told):
    result = bench("sweep", "--model", "synthetic:tiny", "--variants", f"kv_f32,{name}", cwd=tmp_path)
    assert result.returncode == 1
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert told in line


def test_the_header_and_the_example_are_printed_as_they_are(tmp_path):
    for arguments, name in (([], HEADER), (["--example"], EXAMPLE)):
        result = bench("engine-header", *arguments, cwd=tmp_path)
        assert result.returncode == 0
        assert result.stdout == shipped_text(name)
    assert "engine-header" in bench("list", cwd=tmp_path).stdout
