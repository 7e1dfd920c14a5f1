"""A sweep with a real talker, through the worker: a seeded tiny one, its own file, and one that does not fit."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="needs the extra llama: python -m pip install 'cplab[llama]'")

from bench.records import read_records, read_summary
from cplab.formats import FORMATS
from cplab.sources import gguf_writing
from cplab.sources.synthetic_talker import file_of
from cplab.sources.talker import Qwen3, qwen3_name, talker_shapes


def sweep(folder, *more):
    result = subprocess.run(
        [
            sys.executable, "-m", "bench", "sweep", "--model", "synthetic:tiny", "--variants", "kv_bf16",
            "--threads", "1,2", "--rounds", "3", "--frames", "4", *more,
        ],
        cwd=folder, env=dict(os.environ), capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    runs = [path for path in folder.glob("reports/runs/*/*") if not path.name.startswith(".")]
    return result, runs[0] if runs else None


@pytest.fixture(scope="module")
def with_talker(tmp_path_factory):
    return sweep(tmp_path_factory.mktemp("talker"))


@pytest.mark.slow
def test_the_talker_is_measured_in_every_round_of_the_cells(with_talker):
    result, run = with_talker
    assert result.returncode == 0, result.stderr
    records = read_records(run / "records.jsonl")
    rounds = {r.round: r for r in records if r.phase == "talker"}
    # Cells that came out above their roof have one round more, at the end.
    assert sorted(rounds) == sorted({r.round for r in records if r.phase == "timed"} - {3}) == [0, 1, 2]
    assert all(len(r.samples_ns) == 4 and r.prefill_ns and r.first_call_ns for r in rounds.values())
    places = {(r.round, r.order) for r in records if r.phase in ("timed", "talker") and r.round < 3}
    assert len(places) == 9  # three cells in each of three rounds, each in a place of its own


@pytest.mark.slow
def test_the_summary_and_the_terminal_have_it(with_talker):
    result, run = with_talker
    summary = read_summary(run / "summary.json")
    talker = summary.talker
    assert summary.without_talker is None
    timed = [record for record in read_records(run / "records.jsonl") if record.phase == "talker"]
    assert len(timed) == 3 + sum(bool(record.facts.get("again_for")) for record in timed)  # made again where disturbed
    steps = 4 * len(timed)
    assert (talker.name, talker.rounds, talker.steps, talker.positions) == ("synthetic-talker:tiny", 3, steps, 19)
    assert talker.threads in (1, 2)
    assert 0 < talker.step_ms.min <= talker.step_ms.p50
    assert talker.prefill_ms > talker.step_ms.min
    assert talker.backend.startswith("llama-cpp-python")
    assert "Talker: synthetic-talker:tiny in llama-cpp-python" in result.stdout
    assert not any("talker" in line for line in summary.run.not_measured)


@pytest.mark.slow
def test_a_talker_of_the_users_own(tmp_path):
    mine = tmp_path / "mine.gguf"
    mine.write_bytes(file_of("synthetic-talker:tiny:f32").read_bytes())
    result, run = sweep(tmp_path, "--talker", "mine.gguf", "--rounds", "1")
    assert result.returncode == 0, result.stderr
    talker = read_summary(run / "summary.json").talker
    assert talker.name == "mine.gguf"
    assert talker.backend.endswith("F32")


def test_a_talker_of_another_width_is_refused_before_anything_is_measured(tmp_path):
    dims = Qwen3(
        hidden=128, intermediate=64, layers=1, heads=2, kv_heads=1, head_dim=32, vocab=1280, context=256,
        rope_theta=1e6, rms_eps=1e-6,
    )  # fmt: skip
    f32, shapes = FORMATS["f32"], talker_shapes(dims)
    declared = [gguf_writing.Declared(qwen3_name(name), shape, f32) for name, shape in shapes.items()]
    zeros = (np.zeros(shape, np.float32) for shape in shapes.values())
    gguf_writing.write_tensors(tmp_path / "wide.gguf", "qwen3", dims.keys(), declared, zeros)
    result, run = sweep(tmp_path, "--talker", "wide.gguf")
    assert result.returncode == 1
    assert "wide.gguf: a talker of width 128; the code predictor wants 64" in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert run is None
