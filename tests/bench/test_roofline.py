"""The roofline: sizes, levels, where a cell stands, and that this machine's can be measured."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_rooflines import MIB, cell, curve, roofline

from bench import roofline as measuring
from bench import run_roofline
from bench.bandwidth_curve import curve_sizes, level_of
from bench.frame_work import macs_of, macs_per_frame
from bench.instruction_set import LEVELS, Level
from bench.records import ROOFLINE_FILE, UnreadableRecordError, point_of, read_roofline, read_summary
from bench.roofline import best_of, measured_roofline
from bench.roofline_worker import RooflineJob, RooflineResult
from bench.run_roofline import RunRoofline
from cplab.sources import load_model

HERE = Path(__file__).parents[2]
SUMMARY = HERE / "reports/examples/xeon-2c/summary.json"
EPYC = {
    "l1d": {"bytes": 32 << 10, "total_bytes": 64 << 10, "instances": 2},
    "l2": {"bytes": 512 << 10, "total_bytes": 1 << 20, "instances": 2},
    "l3": {"bytes": 32 << 20, "total_bytes": 32 << 20, "instances": 1},
}


def test_sizes_double_from_half_an_l2_to_twice_the_last_cache():
    sizes = curve_sizes(EPYC, 1, 8 << 30)
    assert sizes == [(256 << 10) << k for k in range(9)]
    assert sizes[-1] == 64 << 20


@pytest.mark.parametrize("threads", [1, 2, 3, 6, 24, 64])
def test_every_member_gets_the_same_share_of_every_size(threads):
    for size in curve_sizes(EPYC, threads, 8 << 30):
        assert size % (16 * 2048 * threads) == 0


def test_a_machine_that_hides_its_caches_gets_a_curve_to_256_mib_and_no_levels():
    for caches in (None, {"l1d": {"bytes": 65536}}):
        assert curve_sizes(caches, 1, None)[-1] == 256 << 20
        assert level_of(64 << 20, caches, 1) is None


def test_little_memory_ends_the_curve():
    assert curve_sizes(EPYC, 1, 64 << 20)[-1] == 16 << 20
    assert curve_sizes(EPYC, 1, 1 << 20) == [256 << 10]
    assert curve_sizes(EPYC, 1, 1 << 16) == []


@pytest.mark.parametrize(
    ("size", "threads", "level"),
    [
        (256 << 10, 1, "l2"),
        (768 << 10, 1, "cache"),
        (768 << 10, 2, "l2"),
        (768 << 10, 8, "l2"),  # two L2 are two however many threads there are
        (16 << 20, 1, "cache"),
        (32 << 20, 1, None),
        (64 << 20, 1, "memory"),
    ],
)
def test_levels(size, threads, level):
    assert level_of(size, EPYC, threads) == level


def test_of_several_last_caches_a_team_is_only_sure_of_one():
    caches = EPYC | {"l3": {"bytes": 32 << 20, "total_bytes": 256 << 20, "instances": 8}}
    assert level_of(20 << 20, caches, 8) == "cache"
    assert level_of(128 << 20, caches, 8) is None
    assert level_of(512 << 20, caches, 8) == "memory"


def test_a_cached_token_is_one_pass_and_recomputing_is_the_sum_of_all():
    spec = load_model("synthetic:0.6b").spec
    heads = 15 * spec.vocab * spec.hidden
    keys_and_values = 2 * spec.kv_rows * spec.hidden
    layer = (spec.q_rows + 2 * spec.kv_rows + spec.q_rows + 3 * spec.intermediate) * spec.hidden
    attention = 2 * spec.q_rows
    # The last layer's queries, o_proj and feed forward run for the 15 positions that give a code.
    kept = 4 * (16 * layer + attention * sum(range(1, 17)))
    kept += 16 * keys_and_values + 15 * (layer - keys_and_values) + attention * sum(range(2, 17))
    assert macs_per_frame(spec, recompute=False) == kept + heads
    again = 4 * (sum(range(2, 17)) * layer + attention * sum(n * (n + 1) // 2 for n in range(2, 17)))
    again += sum(range(2, 17)) * keys_and_values + 15 * (layer - keys_and_values) + attention * sum(range(2, 17))
    assert macs_per_frame(spec, recompute=True) == again + heads
    assert 6 < again / kept < 7.5


def test_a_predictor_that_skips_passes_must_tell_its_own_work():
    class Predictor:
        model = load_model("synthetic:tiny")
        passes_per_frame = model.spec.passes

    assert macs_of(Predictor()) == macs_per_frame(Predictor.model.spec, recompute=False)
    Predictor.passes_per_frame = 1
    assert macs_of(Predictor()) is None
    Predictor.macs_per_frame = 7
    assert macs_of(Predictor()) == 7


def test_bandwidth_is_taken_at_the_size_of_a_pass():
    team = roofline().team(1)
    assert team.gbps_at(1) == 100.0
    assert team.gbps_at(MIB) == 100.0
    assert team.gbps_at(4 * MIB) == pytest.approx(70.0)
    assert team.gbps_at(16 * MIB) == 40.0
    assert team.gbps_at(64 * MIB) == pytest.approx(25.0)
    assert team.gbps_at(1 << 40) == 10.0
    assert (team.gmacs("float32"), team.gmacs("int8")) == (50.0, 200.0)
    assert (team.best_gbps("memory"), team.best_gbps("l2")) == (10.0, 100.0)


def test_a_cell_under_the_slope_and_one_under_the_flat_roof():
    point = point_of(cell(805.306368), roofline())
    assert point.bound == "bandwidth"
    assert point.flop_per_byte == pytest.approx(2e9 / (15 * 256 * MIB))
    assert point.share == pytest.approx(0.5)  # 4 GB in 0.8 s are 5 GB/s of 10
    assert not point.above
    dense = point_of(cell(400.0, macs=10**10), roofline())
    assert dense.bound == "bandwidth"
    denser = point_of(cell(4000.0, macs=10**11), roofline())
    assert (denser.bound, denser.roof_gflops, denser.share) == ("arithmetic", 100.0, pytest.approx(0.5))


def test_weights_of_integers_are_under_the_int8_peak():
    fast = {"ms": 1000.0, "macs": 10**11}
    assert point_of(cell(**fast, arithmetic="q8_0"), roofline()).roof_gflops == 400.0
    assert point_of(cell(**fast), roofline()).above
    assert not point_of(cell(**fast, arithmetic="q8_0"), roofline()).above


def test_what_is_faster_than_memory_is_above_and_what_fits_a_cache_is_not():
    assert point_of(cell(300.0), roofline()).above
    assert not point_of(cell(300.0, bytes_per_frame=15 * MIB), roofline()).above


@pytest.mark.parametrize(
    "changed", [{"macs_per_frame": None}, {"bytes_per_frame": None}, {"threads": 2}, {"cp_ms": None, "gate": "crash"}]
)
def test_a_cell_that_does_not_tell_its_work_has_no_point(changed):
    if changed.get("gate"):
        changed = changed | {"exact": False}
    assert point_of(cell(1.0, **changed), roofline()) is None


def test_two_measurements_keep_what_was_reached_once():
    first = roofline()
    slower = first.teams[0].model_copy(update={"bandwidth": curve((MIB, 120.0, "l2"), (256 * MIB, 4.0, "memory"))})
    other = slower.model_copy(update={"threads": 2})
    both = best_of(first, first.model_copy(update={"teams": [slower, other]}))
    assert [point.best_gbps for point in both.team(1).bandwidth] == [120.0, 40.0, 10.0]
    assert both.team(2) == other
    assert both.elapsed_s == 6.0


def test_a_roofline_is_written_and_read(tmp_path):
    path = tmp_path / ROOFLINE_FILE
    assert read_roofline(path) is None
    path.write_text(roofline().model_dump_json(by_alias=True))
    assert read_roofline(path) == roofline()
    path.write_text('{"schema": "cplab.roofline/9"}')
    with pytest.raises(UnreadableRecordError, match=r"cplab\.roofline/9"):
        read_roofline(path)
    path.write_text("{")
    with pytest.raises(UnreadableRecordError):
        read_roofline(path)


def test_a_worker_that_dies_costs_its_thread_count_only(monkeypatch):
    good = RooflineResult(bandwidth=curve((MIB, 9.0, None)), peaks=[], narrower=["AVX2"])
    answers = iter(["no result within 1 s", good, "its worker ended with -4"])
    monkeypatch.setattr(measuring, "_run", lambda job, level, timeout_s: next(answers))
    found = measured_roofline({"cpu": {"caches": EPYC}, "memory": {}}, [1, 2])
    assert found.team(1).reason == "no result within 1 s"
    assert not found.team(1).bandwidth
    assert len(found.team(2).bandwidth) == 1
    assert found.team(2).reason == "AVX2: its worker ended with -4"


def test_a_run_marks_what_is_above_and_measures_that_team_again(tmp_path, monkeypatch):
    asked = []

    def measured(machine, threads, say):
        asked.append(list(threads))
        return roofline()

    monkeypatch.setattr(run_roofline, "measured_roofline", measured)
    monkeypatch.setattr(run_roofline, "allowed_cpus", lambda: 2)
    run = RunRoofline(True, {}, None)
    run.measure([2, 1, 4, 1], print)
    summary = read_summary(SUMMARY)
    summary = summary.model_copy(update={"cells": [cell(300.0), cell(900.0, variant="slow")]})
    marked = run.marked(summary)
    assert [one.above_roofline for one in marked.cells] == [True, False]
    run.measure_again([one.threads for one in marked.cells if one.above_roofline], print)
    assert asked == [[1, 2], [1]]
    run.measure_again([], print)
    assert len(asked) == 2


def test_a_run_that_does_not_want_a_roofline_has_none_and_marks_nothing():
    run = RunRoofline(False, {}, None)
    run.measure([1], print)
    summary = read_summary(SUMMARY)
    assert run.found is None
    assert run.marked(summary) is summary


def run_worker(job, level=None):
    environment = os.environ | (level or Level()).environment | {"NUMBA_NUM_THREADS": "1", "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-m", "bench.roofline_worker"]
    done = subprocess.run(command, input=job, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return RooflineResult.model_validate_json(done.stdout)


def test_this_machine_has_a_roofline():
    sizes = [256 << 10, 8 << 20]
    found = run_worker(RooflineJob(threads=1, sizes=sizes, caches=EPYC).model_dump_json())
    assert [point.bytes for point in found.bandwidth] == sizes
    assert all(0.05 < point.gbps <= point.best_gbps < 10_000 for point in found.bandwidth)
    assert {peak.kind for peak in found.peaks} == {"float32", "int8"}
    assert all(0.1 < peak.gmacs < 100_000 for peak in found.peaks)


@pytest.mark.skipif("avx2" not in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else True,
                    reason="needs an x86 CPU with AVX2")  # fmt: skip
def test_a_narrower_instruction_set_is_what_the_variables_say():
    found = run_worker(RooflineJob(threads=1).model_dump_json(), LEVELS["AVX2"])
    names = {peak.kind: peak.instruction_set for peak in found.peaks}
    assert names == {"float32": "AVX2", "int8": "pmaddubsw, 256 bits"}
    assert found.narrower == []
    assert found.bandwidth == []
