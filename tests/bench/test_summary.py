"""What a sweep's cells come to, and that nothing wrong ever gets a time.

The records are made up, for these tests and for those of the files that hold records; none was measured.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.records import (
    CellRecord,
    CheckResult,
    Fidelity,
    GateOutcome,
    Interval,
    ModelFacts,
    RoofSample,
    RunFacts,
    Summary,
    Talker,
)
from bench.summary import CellInfo, summarise
from bench.timed_rounds import timed_records

MODEL = ModelFacts(name="synthetic:0.6b", spec={"layers": 5}, digest="0" * 64, synthetic=True)
RUN = RunFacts(
    command="python -m bench sweep",
    seed=7,
    rounds=3,
    frames_per_round=2,
    started_utc="2001-02-03T04:05:06Z",
    elapsed_s=1.0,
    commit="abcdef012",
    dirty=False,
    tool_version="0",
    golden="made up",
    thread_list=[1, 2],
    thread_list_reason="made up",
)
PASSED = CheckResult(name="logits equal", passed=True)
MS = 1_000_000


def gate(status="pass", detail="", checks=()):
    return GateOutcome(status=status, detail=detail, checks=list(checks))


def record(variant="kv_bf16", threads=2, round=0, **changes):
    """A record of the gate's phase, passed; `timed` makes timed ones."""
    fields = {
        "variant": variant,
        "threads": threads,
        "model": MODEL.name,
        "round": round,
        "order": 0,
        "phase": "gate",
        "gate": gate(detail="30 of 30 codes", checks=[PASSED]),
    }
    return CellRecord(**(fields | changes))


def timed(ms, variant="kv_bf16", threads=2, round=0, **changes):
    """A passing timed record with these samples, in milliseconds."""
    return record(
        variant,
        threads,
        round,
        **({"phase": "timed", "gate": gate(), "samples_ns": [int(t * MS) for t in ms]} | changes),
    )


def failed(status="fail", detail="frame 1, pass 3 differs", variant="kv_bf16", threads=2, round=0, **changes):
    """A timed record that went wrong, without times."""
    return timed([], variant, threads, round, **({"gate": gate(status, detail)} | changes))


def roof(gbps, prefetch_bytes=8192, rows=4, n_bytes=1_000_000):
    return RoofSample(prefetch_bytes=prefetch_bytes, rows=rows, ns=round(n_bytes / gbps), bytes=n_bytes)


def info(variant="kv_bf16", threads=2, **changes):
    return CellInfo(
        **({"variant": variant, "format": "bf16", "arithmetic": "f32", "tier": "exact", "threads": threads} | changes)
    )


def summary(records, cells=None, baseline="recompute_f16", **changes):
    """The records' summary; the cells are those that the records name unless they are given."""
    if cells is None:
        cells = [info(*key) for key in dict.fromkeys((one.variant, one.threads) for one in records)]
    return summarise(records, cells, **({"model": MODEL, "machine": {}, "run": RUN, "baseline": baseline} | changes))


def only(records, **changes):
    (cell,) = summary(records, **changes).cells
    return cell


def untimed(cell):
    times = (cell.cp_ms, cell.gbps, cell.roof_ms, cell.roof_fraction, cell.speedup_vs_baseline, cell.rtf_cp)
    rest = (cell.first_call_ms, cell.load_s, cell.compile_s, cell.round_medians_ms, cell.code_ms, cell.outliers)
    return not any(times + rest) and not cell.rounds and not cell.frames


def test_times_by_hand():
    cell = only(
        [
            record(bytes_per_frame=2_000_000_000, passes_per_frame=15),
            timed([40, 42, 44], round=0, first_call_ns=300 * MS, load_s=1.0, compile_s=0.5, rss_mb=800),
            timed([50], round=1, first_call_ns=100 * MS, load_s=3.0, compile_s=0.1, rss_mb=900),
            timed([38, 42], round=2, first_call_ns=200 * MS, load_s=2.0, compile_s=0.2, rss_mb=850),
        ]
    )
    assert cell.round_medians_ms == [42, 50, 40]
    assert cell.cp_ms == Interval(p50=42, lo=40, hi=50, min=38)
    assert (cell.rounds, cell.frames) == (3, 6)
    assert cell.gbps == pytest.approx(2e9 / 0.042 / 1e9)
    assert cell.rtf_cp == 42 / 80
    assert (cell.first_call_ms, cell.load_s, cell.compile_s, cell.rss_mb) == (200, 2, 0.2, 900)
    assert (cell.bytes_per_frame, cell.passes_per_frame) == (2_000_000_000, 15)
    assert (cell.gate, cell.gate_detail, cell.checks) == ("pass", "30 of 30 codes", [PASSED])


def test_the_spread_of_a_cell():
    cell = only([record(), timed([40, 42, 44]), timed([50], round=1), timed([38, 42, 90], round=2)])
    assert cell.mad_ms == 0  # medians 42, 50 and 42
    assert cell.p99_ms == pytest.approx(87.6)  # of all seven frames


def again(ms, round, **changes):
    """The same cell measured once more under its second name."""
    return timed([ms], "kv_bf16 (again)", round=round, twin_of="kv_bf16", **changes)


def test_a_cell_measured_twice_is_one_cell_and_its_noise():
    medians = [(50, 51), (60, 61.5), (55, 54)]
    records = [record(), *(timed([a], round=n) for n, (a, _) in enumerate(medians))]
    records += [again(b, n) for n, (_, b) in enumerate(medians)]
    found = summary(records, cells=[info()])
    (cell,) = found.cells
    assert cell.round_medians_ms == [50, 60, 55]  # the second name's times are not the cell's
    aa = found.repeatability
    assert (aa.variant, aa.threads, aa.rounds) == ("kv_bf16", 2, 3)
    assert aa.ratio.ratio == pytest.approx(1.02)
    assert aa.noise == pytest.approx(max(aa.ratio.hi - 1, 1 / aa.ratio.lo - 1))
    assert 0.02 <= aa.noise <= 0.026


def test_what_goes_wrong_under_a_second_name_went_wrong():
    wrong = again(1, 1, gate=gate("fail", "other codes"), samples_ns=[])
    found = summary([record(), timed([50]), again(50, 0), wrong], cells=[info()])
    assert (found.cells[0].gate, found.cells[0].cp_ms) == ("fail", None)
    assert found.repeatability is None


def test_without_a_second_name_there_is_no_noise_and_no_soak():
    found = summary([record(), timed([50])])
    assert (found.repeatability, found.soak, found.comparisons) == (None, None, [])


def soaked(ms_at, **changes):
    """A soak whose frames follow one another."""
    began, samples, now = [], [], 0.0
    while now < 100_000:
        began.append(int(now * MS))
        samples.append(int(ms_at(now) * MS))
        now += ms_at(now)
    return timed([], **({"phase": "soak", "samples_ns": samples, "sample_at_ns": began} | changes))


def test_heat_shows_in_a_soak_and_not_in_the_cells_time():
    throttled = soaked(lambda now_ms: 50 if now_ms < 40_000 else 75)
    found = summary([record(), timed([50]), throttled])
    assert (found.soak.start_ms, found.soak.end_ms) == (50, 75)
    assert found.soak.seconds == pytest.approx(100, abs=0.1)
    assert found.soak.frames == len(throttled.samples_ns) == sum(point.frames for point in found.soak.points)
    assert len(found.soak.points) == 60
    assert [point.ms for point in found.soak.points[:20]] == [50] * 20
    assert [point.ms for point in found.soak.points[-30:]] == [75] * 30
    assert found.cells[0].cp_ms.p50 == 50
    assert found.cells[0].rounds == 1


def test_a_soak_of_one_frame():
    found = summary([record(), timed([50]), soaked(lambda now_ms: 200_000)]).soak
    assert (found.frames, found.start_ms, found.end_ms) == (1, 200_000, 200_000)


def test_a_soak_with_other_codes_takes_the_times_away():
    cell = only([record(), timed([50]), failed(detail="other codes", phase="soak")])
    assert (cell.gate, cell.cp_ms) == ("fail", None)


def test_records_come_in_any_order():
    records = [record(), timed([1], round=0), timed([2], round=1), timed([4], round=2)]
    assert only(records) == only(records[::-1])


def test_code_times_are_medians_over_all_frames():
    records = [
        record(),
        timed([9, 9], round=0, pass_ns=[[1 * MS, 8 * MS], [3 * MS, 6 * MS]]),
        timed([9], round=1, pass_ns=[[2 * MS, 9 * MS]]),
    ]
    assert only(records).code_ms == [2, 8]


def test_frames_with_fewer_passes_count_where_they_have_one():
    assert only([record(), timed([5, 5], pass_ns=[[2 * MS], [4 * MS, 1 * MS]])]).code_ms == [3, 1]


def test_outliers_are_counted_within_rounds():
    slow_round = [100, 100, 100, 100, 100]
    assert only([record(), timed([1, 2, 3, 4, 8], round=0), timed(slow_round, round=1)]).outliers == 1


def test_a_round_measured_again_holds_both_measurements():
    cell = only([record(), timed([10, 20], round=0), timed([30], round=0, order=9), timed([5], round=1)])
    assert cell.round_medians_ms == [20, 5]


def test_oversubscribed_in_any_record():
    assert only([record(), timed([1]), timed([1], round=1, oversubscribed=True)]).oversubscribed
    assert not only([record(), timed([1])]).oversubscribed


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ([], "skip"),
        (["skip"], "skip"),
        (["skip", "pass"], "pass"),
        (["pass", "pass"], "pass"),
        (["pass", "fail", "pass"], "fail"),
        (["fail", "crash"], "crash"),
        (["crash", "skip"], "crash"),
    ],
)
def test_the_gate_is_the_worst_record(statuses, expected):
    records = [record(gate=gate(status), order=number) for number, status in enumerate(statuses)]
    assert only(records, cells=[info()]).gate == expected


def test_a_cell_whose_gate_failed_has_no_times_even_if_it_was_timed():
    wrong = CheckResult(name="logits equal", passed=False)
    cell = only([record(gate=gate("fail", "logit 17 differs", [wrong])), timed([1]), timed([1], round=1)])
    assert (cell.gate, cell.gate_detail, cell.checks) == ("fail", "logit 17 differs", [wrong])
    assert untimed(cell)
    assert not cell.exact


@pytest.mark.parametrize("status", ["fail", "crash"])
def test_one_wrong_round_takes_all_times(status):
    cell = only([record(), timed([1], roof=[roof(40)], bytes_per_frame=10), failed(status, "code 5 for 1911", round=3)])
    assert (cell.gate, cell.gate_detail) == (status, "round 3: code 5 for 1911")
    assert untimed(cell)
    assert not cell.exact


def test_the_detail_tells_the_first_of_the_worst_and_the_other_rounds():
    cell = only(
        [
            record(),
            failed("fail", "a code differs", round=1),
            failed("crash", "", round=4, reason="worker died with SIGSEGV"),
            failed("crash", "another", round=5),
        ]
    )
    assert cell.gate_detail == "round 4: worker died with SIGSEGV (not the only one: also 1, 5)"
    assert cell.reason == ""  # not a second time, and without its round


def test_a_reason_that_the_detail_does_not_tell_is_kept():
    cell = only([record(), failed("crash", "the worker gave no record", round=2, reason="SIGSEGV")])
    assert (cell.gate_detail, cell.reason) == ("round 2: the worker gave no record", "SIGSEGV")


def test_calls_of_the_gate_are_never_samples():
    cell = only([record(samples_ns=[1]), timed([5])])
    assert (cell.frames, cell.cp_ms.min) == (1, 5)
    assert untimed(only([record(samples_ns=[1])]))


@given(
    st.lists(
        st.tuples(st.sampled_from(["pass", "fail", "crash", "skip"]), st.booleans(), st.integers(0, 3)), max_size=8
    )
)
def test_times_exist_only_where_nothing_went_wrong(drawn):
    records = [
        timed([7], round=number) if status == "pass" and is_timed else failed(status, round=number)
        for status, is_timed, number in drawn
    ]
    cell = only(records, cells=[info()], baseline="kv_bf16")
    statuses = {status for status, _, _ in drawn}
    if statuses & {"fail", "crash"}:
        assert cell.gate in ("fail", "crash")
        assert untimed(cell)
        assert not timed_records(records)
    else:
        assert (cell.cp_ms is not None) == any(one.samples_ns for one in records)


def test_what_was_not_run_is_a_skip_with_its_reason():
    cell = only([], cells=[info("llama_f16", tier="quality", reason="needs llama-cpp-python")])
    assert (cell.gate, cell.reason, cell.exact) == ("skip", "needs llama-cpp-python", False)
    assert untimed(cell)


def test_a_passing_cell_that_was_not_timed_says_why():
    cell = only([record(), timed([], gate=gate("skip"), reason="the time budget was used up")])
    assert (cell.gate, cell.reason, cell.exact) == ("pass", "the time budget was used up", True)
    assert untimed(cell)


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        ({}, True),
        ({"tier": "codes"}, False),
        ({"tier": "quality"}, False),
        ({"arithmetic": "q8_0"}, False),
        ({"lossy_weights": 1}, False),
    ],
)
def test_what_is_called_exact(changes, exact):
    cell = only([record(), timed([1])], cells=[info(**changes)])
    assert cell.exact is exact
    assert cell.cp_ms is not None


def test_what_is_known_of_a_cell_is_handed_on():
    fidelity = Fidelity(teacher_forced=0.98, free_running=0.4)
    cell = only([record()], cells=[info(format="q8_0", arithmetic="q8_0", lossy_weights=9, fidelity=fidelity)])
    assert (cell.format, cell.arithmetic, cell.lossy_weights, cell.fidelity) == ("q8_0", "q8_0", 9, fidelity)


def test_the_roof_is_the_best_configuration_by_its_median_over_rounds():
    far, near = {"prefetch_bytes": 8192}, {"prefetch_bytes": 512}
    cell = only(
        [
            record(bytes_per_frame=2_000_000_000),
            # near: 100, 10, 10 GB/s, so 10; its one lucky round does not count. far: 20, 25, 40, so 25.
            timed([100], round=0, roof=[roof(100, **near), roof(20, **far)]),
            timed([100], round=1, roof=[roof(10, **near), roof(25, **far)]),
            timed([100], round=2, roof=[roof(10, **near), roof(40, **far)]),
        ]
    )
    assert cell.roof_ms == pytest.approx(80)  # 2 GB at 25 GB/s
    assert cell.roof_fraction == pytest.approx(0.8)
    assert not cell.roof_suspect


def test_rows_are_part_of_a_roofs_configuration():
    cell = only([record(bytes_per_frame=10**9), timed([100], roof=[roof(10, rows=1), roof(20, rows=2)])])
    assert cell.roof_ms == pytest.approx(50)


def test_a_cell_above_its_roof_is_suspect():
    cell = only([record(bytes_per_frame=10**9), timed([49], roof=[roof(20)])])
    assert cell.roof_fraction == pytest.approx(50 / 49)
    assert cell.roof_suspect


def test_a_roof_without_bytes_counts_for_nothing():
    cell = only(
        [record(bytes_per_frame=10**9), timed([49], roof=[roof(20, n_bytes=1).model_copy(update={"bytes": 0})])]
    )
    assert (cell.roof_ms, cell.roof_fraction, cell.roof_suspect) == (None, None, False)


def test_without_bytes_there_is_neither_bandwidth_nor_roof():
    cell = only([record(), timed([49], roof=[roof(20)])])
    assert (cell.gbps, cell.roof_ms, cell.roof_fraction) == (None, None, None)


def test_the_roof_by_threads_is_the_best_of_the_cells_that_passed():
    found = summary(
        [
            timed([9], "a", 2, roof=[roof(30)]),
            timed([9], "b", 2, roof=[roof(37), roof(20, rows=1)]),
            timed([9], "c", 2, round=0, roof=[roof(90)]),
            failed(variant="c", threads=2, round=1),
            timed([9], "a", 10, roof=[roof(50)]),
            timed([9], "a", 1),
        ]
    )
    assert found.roof["threads"] == {"2": pytest.approx(37, rel=1e-3), "10": pytest.approx(50, rel=1e-3)}
    assert list(found.roof["threads"]) == ["2", "10"]


def test_speedup_is_against_the_baseline_at_its_best_thread_count():
    found = summary(
        [
            *(timed([ms], "recompute_f16", 1, n) for n, ms in enumerate([300, 310, 290])),
            *(timed([ms], "recompute_f16", 2, n) for n, ms in enumerate([150, 160, 200])),
            *(timed([ms], "kv_bf16", 2, n) for n, ms in enumerate([75, 80, 100])),
        ]
    )
    ratios = {(cell.variant, cell.threads): cell.speedup_vs_baseline for cell in found.cells}
    assert ratios["kv_bf16", 2].ratio == pytest.approx(2)
    assert ratios["kv_bf16", 2].hi / ratios["kv_bf16", 2].lo == pytest.approx(1)  # the drift is shared
    assert ratios["recompute_f16", 2].ratio == 1
    assert ratios["recompute_f16", 1].ratio == pytest.approx(160 / 310)  # of 150/300, 160/310 and 200/290


def test_a_baseline_thread_count_that_failed_is_not_compared_with():
    found = summary(
        [
            timed([300], "recompute_f16", 1),
            timed([100], "recompute_f16", 2),
            failed(variant="recompute_f16", threads=2, round=1),
            timed([50], "kv_bf16", 2),
        ]
    )
    assert found.cells[-1].speedup_vs_baseline.ratio == pytest.approx(6)


def test_without_a_passing_baseline_or_a_common_round_there_is_no_ratio():
    assert only([timed([50])]).speedup_vs_baseline is None
    apart = summary([timed([50], "recompute_f16", 1, round=0), timed([50], "kv_bf16", 1, round=1)])
    assert apart.cells[1].speedup_vs_baseline is None


def test_cells_stand_in_the_order_asked_for_and_the_summary_reads_back():
    talker = Talker(backend="made up", prefill_ms=None, step_ms=Interval(p50=1, lo=1, hi=1, min=1))
    cells = [info("b"), info("a"), info("b", 1)]
    found = summary([timed([2], "a"), record("b")], cells=cells, talker=talker, machine={"cpu": {}})
    assert [(cell.variant, cell.threads) for cell in found.cells] == [("b", 2), ("a", 2), ("b", 1)]
    assert (found.talker, found.machine, found.baseline) == (talker, {"cpu": {}}, "recompute_f16")
    assert Summary.model_validate_json(found.model_dump_json(by_alias=True)) == found


@pytest.mark.parametrize(
    ("records", "cells", "message"),
    [
        ([timed([1], "stray")], [info()], "stray x 2"),
        ([], [info(), info()], "twice"),
        ([timed([1]), timed([1], round=1, model="another")], [info()], "several models"),
    ],
)
def test_records_that_do_not_belong_together_are_refused(records, cells, message):
    with pytest.raises(ValueError, match=message):
        summary(records, cells=cells)
