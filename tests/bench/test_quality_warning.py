"""Figures beside the float32 of weights that are rounded already: said on terminals, in records and on pages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bench_command import bench

sys.path.insert(0, str(Path(__file__).parents[1] / "cplab"))

from checkpoint_files import Folder
from dialect_files import in_dialect

from bench.cli import app
from bench.quality.warning import SEEDED, warning_of
from bench.records.quality_reading import read_quality
from cplab.commandline import run
from cplab.export import planned
from cplab.golden_making import make_golden
from cplab.recipe import parse
from cplab.sources import load_model

ROUNDED = "This file holds rounded weights already (q4_0)"


def exported(folder, recipe):
    (part,) = planned(Folder(load_model("synthetic:tiny")).write(folder / "m"), folder / "cp.gguf", recipe=recipe)
    part.write()
    return folder / "cp.gguf"


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A file with one class in q4_0, and its golden."""
    folder = tmp_path_factory.mktemp("mixed")
    path = exported(folder, parse("down q4_0"))
    make_golden(load_model(str(path)), 4).save(folder / "g.npz")
    return path, folder / "g.npz"


@pytest.mark.parametrize("floats", ["f32", "bf16", "f16"])
def test_float_files_are_no_reason_to_warn(tmp_path, floats):
    assert warning_of(load_model(str(exported(tmp_path, parse(f"all {floats}"))))) == ""
    assert warning_of(load_model("synthetic:tiny")) == SEEDED


def test_one_class_in_another_format_is_enough(mixed):
    assert ROUNDED in warning_of(load_model(str(mixed[0])))


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1"])
def test_a_format_without_a_kernel_is_named_though_it_was_decoded(tmp_path, kind):
    file, _ = in_dialect("qwentts.cpp", load_model("synthetic:tiny"), kind)
    model = load_model(str(file.write(tmp_path / "m.gguf")))
    assert f"({kind.lower()})" in warning_of(model)


@pytest.mark.parametrize(
    "asked",
    [
        ["quality", "--sensitivity", "--formats", "q8_0"],
        ["recipe", "--budget-mb", "100"],
        ["formats"],
    ],
)
def test_commands_on_trials_say_it_and_keep_it(mixed, asked, tmp_path, capsys):
    path, golden = mixed
    kept = ["--out", str(tmp_path)] if asked[0] == "quality" else ["--json", str(tmp_path / "found.json")]
    run(app, [*asked, "--model", str(path), "--golden", str(golden), "-t", "1", *kept])
    assert ROUNDED in capsys.readouterr().out
    (file,) = tmp_path.rglob("*.json")
    assert ROUNDED in json.loads(file.read_text(encoding="utf-8"))["warning"]


@pytest.mark.slow
def test_so_does_quality_and_its_pages(mixed, tmp_path):
    path, golden = mixed
    result = bench(
        "quality", "--model", str(path), "--golden", str(golden), "--variants", "kv_stored", "--rollout", "0",
        "-t", "1", cwd=tmp_path, timeout=500,
    )  # fmt: skip
    assert ROUNDED in result.stdout
    (file,) = tmp_path.glob("reports/quality/*/*/quality.json")
    assert ROUNDED in read_quality(file).warning
    assert ROUNDED in file.with_suffix(".md").read_text(encoding="utf-8").splitlines()[0]
