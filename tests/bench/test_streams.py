"""Frames of several utterances at once: cells of their own, files of their own, and what they come to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench_command import bench
from made_up_runs_on_disk import MACHINE, finished, plan, records
from pydantic import ValidationError
from test_rounds import NARROW, WIDE, rounds
from test_summary import failed, record, timed

from bench.cells import Cell, worker_seconds
from bench.cli_measuring import code_of
from bench.plan_summary import summary_of
from bench.records import (
    GateOutcome,
    StreamPoint,
    StreamRecord,
    Streams,
    UnreadableRecordError,
    read_records,
    read_stream_records,
    read_streams,
    read_summary,
)
from bench.rounds import worth_more
from bench.run_folder import RunFolder
from bench.stream_cells import StreamCells, rounds_of_streams, streams_of
from bench.unfinished import recover
from cplab.commandline import GATE_FAILED, GOOD

ODD = Path(__file__).parent / "odd_variants.py"


def at_once(batch, medians, variant="kv_bf16"):
    """Rounds of calls that took so many ms with ``batch`` frames."""
    return [StreamRecord(batch=batch, measured=one) for one in rounds(variant, medians)]


def made_up(streams, rounds=3):
    """What streams come to beside a run in which a single frame of kv_bf16 takes about 60 ms."""
    singles = records(rounds=rounds)
    summary = summary_of(plan(), singles, MACHINE, elapsed_s=1.0, interrupted=False)
    return summary, streams_of(streams, singles, summary)


# -- what is told -----------------------------------------------------------------------------------------------------


def test_what_calls_were_made_of_comes_from_the_workers_records():
    told = [one.model_copy(update={"measured": one.measured.model_copy(update={"facts": {"golden_frames": 10}})})
            for one in at_once(16, [80.0, 88.0])]  # fmt: skip
    assert [point.golden_frames for point in made_up(told)[1].points] == [None, 10]
    assert [point.golden_frames for point in made_up(at_once(16, [80.0]))[1].points] == [None, None]


def test_a_frames_time_is_its_calls_divided_and_frames_a_second_are_of_all():
    single, four = made_up(at_once(4, [80.0, 88.0, 72.0]))[1].points
    assert (single.batch, four.batch) == (1, 4)
    assert (four.call_ms.p50, four.frame_ms.p50, four.frames_per_s.p50) == (80.0, 20.0, 50.0)
    assert (four.frame_ms.lo, four.frame_ms.hi) == (18.0, 22.0)
    assert four.frames_per_s.lo == pytest.approx(4000 / 88)
    assert four.frames_per_s.hi == pytest.approx(4000 / 72)
    assert (four.rounds, four.calls) == (3, 3)
    assert single.frame_ms == single.call_ms
    assert single.frames_per_s.p50 == pytest.approx(1000 / single.call_ms.p50)
    assert single.gain is None


def test_the_gain_is_paired_by_round():
    """Calls with two frames take exactly as long as one frame does in the same round, however rounds differ."""
    singles = [one for one in records(rounds=5) if one.variant == "kv_bf16" and one.phase == "timed"]
    streams = [StreamRecord(batch=2, measured=one) for one in singles]
    _, two = made_up(streams, rounds=5)[1].points
    assert (two.gain.ratio, two.gain.lo, two.gain.hi) == pytest.approx((2, 2, 2))


def test_batches_stand_in_order_behind_the_single_frame_of_their_cell():
    streams = [*at_once(8, [200.0]), *at_once(2, [70.0]), *at_once(2, [300.0], "recompute_f16")]
    points = made_up(streams)[1].points
    assert [(p.variant, p.batch) for p in points] == [
        ("recompute_f16", 1), ("recompute_f16", 2), ("kv_bf16", 1), ("kv_bf16", 2), ("kv_bf16", 8),
    ]  # fmt: skip


def test_a_run_without_streams_has_none():
    assert made_up([])[1] is None


def test_one_wrong_round_leaves_no_time_of_that_batch_and_all_of_the_others():
    wrong = failed(variant="kv_bf16", round=1, reason="frame 1 as number 3 of 4 at once")
    streams = [*at_once(4, [80.0, 81.0]), StreamRecord(batch=4, measured=wrong), *at_once(2, [70.0])]
    summary, found = made_up(streams)
    single, two, four = found.points
    assert (four.gate, four.call_ms, four.frames_per_s, four.exact) == ("fail", None, None, False)
    assert four.detail == "frame 1 as number 3 of 4 at once"
    assert two.gate == single.gate == "pass"
    assert summary.cells[1].cp_ms is not None
    assert (code_of(summary), code_of(summary, found)) == (GOOD, GATE_FAILED)


def test_a_time_without_a_passed_gate_cannot_be_written_down():
    fine = made_up(at_once(4, [80.0]))[1].points[1]
    with pytest.raises(ValidationError, match="times where the gate says fail"):
        StreamPoint(**(fine.model_dump() | {"gate": "fail"}))
    with pytest.raises(ValidationError, match="times on a record"):
        StreamRecord(batch=4, measured=record().model_copy(update={"samples_ns": [1]}).model_dump() | {
            "gate": GateOutcome(status="fail", detail="").model_dump()
        })  # fmt: skip


# -- the rounds -------------------------------------------------------------------------------------------------------


def test_a_cell_says_how_many_frames_it_gets_at_once():
    assert str(Cell("kv_bf16", 2)) == "kv_bf16 x 2"
    assert str(Cell("kv_bf16", 2, 8)) == "kv_bf16 x 2, 8 frames at once"
    assert Cell("kv_bf16", 2, 8).single == Cell("kv_bf16", 2)


def test_each_chosen_cell_gets_every_batch():
    cells = StreamCells([2, 8], [], None)
    cells.choose([Cell("a", 1), Cell("b", 2)])
    assert cells.cells == [Cell("a", 1, 2), Cell("a", 1, 8), Cell("b", 2, 2), Cell("b", 2, 8)]


def test_a_wide_batch_goes_on_with_its_single_frames_and_a_narrow_one_stops():
    alive = [Cell("a", 2), Cell("a", 2, 2), Cell("a", 2, 4)]
    streams = [*at_once(2, NARROW, "a"), *at_once(4, WIDE, "a")]
    assert worth_more(alive, rounds("a", NARROW), baseline="none", streams=streams) == [Cell("a", 2), Cell("a", 2, 4)]
    assert worth_more(alive[:2], rounds("a", NARROW), baseline="none", streams=streams) == []


def test_samples_of_batches_are_never_mixed():
    found = rounds_of_streams([*at_once(2, [10.0]), *at_once(4, [20.0])])
    assert found == {Cell("kv_bf16", 2, 2): {0: [10_000_000]}, Cell("kv_bf16", 2, 4): {0: [20_000_000]}}


def test_their_share_of_the_budget_is_kept_back():
    gated = [record().model_copy(update={"warmup_ns": [50_000_000]})]
    wanted = 1.2 * 6 * (worker_seconds(100.0, 3) + worker_seconds(400.0, 3))
    assert StreamCells([2, 8], [], None).need_s(gated, 6) == pytest.approx(wanted)
    assert StreamCells([], [], None).need_s(gated, 6) == 0


def test_what_was_measured_or_went_wrong_before_is_known():
    wrong = StreamRecord(batch=8, measured=failed(variant="kv_bf16", round=2))
    cells = StreamCells([4, 8], [*at_once(4, [80.0]), wrong], None)
    assert cells.measured() == {(Cell("kv_bf16", 2, 4), 0), (Cell("kv_bf16", 2, 8), 2)}
    assert cells.wrong() == {Cell("kv_bf16", 2, 8)}


# -- files ------------------------------------------------------------------------------------------------------------


def test_they_have_files_of_their_own(tmp_path):
    """Whoever reads ``records.jsonl`` and ``summary.json``, of whichever version, reads of single frames."""
    streams = at_once(4, [80.0, 81.0])
    with RunFolder(tmp_path / "run") as run:
        for one in records(rounds=2):
            run.append(one)
        for one in streams:
            run.append_stream(one)
        summary, found = made_up(streams, rounds=2)
        run.write_summary(summary)
        run.write_streams(found)
    plain = finished(tmp_path / "plain", records(rounds=2))
    for name in ("records.jsonl", "summary.json"):
        assert "batch" not in (run.path / name).read_text()
        ours, theirs = ((path / name).read_text().splitlines() for path in (run.path, plain))
        assert len(ours) == len(theirs)
    assert read_stream_records(run.path / "streams.jsonl") == streams
    assert read_streams(run.path / "streams.json") == found
    assert not (plain / "streams.jsonl").exists()
    assert read_streams(plain / "streams.json") is None
    assert read_stream_records(plain / "streams.jsonl") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "streams.json: "), ('{"schema": "cplab.streams/9"}', "reads 'cplab.streams/1'"),
     ('{"schema": "cplab.streams/1", "points": [{}]}', "points.0.variant: ")],
)  # fmt: skip
def test_what_cannot_be_read_is_told_in_one_line(tmp_path, text, message):
    (tmp_path / "streams.json").write_text(text)
    with pytest.raises(UnreadableRecordError, match=message):
        read_streams(tmp_path / "streams.json")


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "streams.jsonl").write_text(at_once(4, [80.0])[0].model_dump_json(by_alias=True) + "\n{}\n")
    with pytest.raises(UnreadableRecordError, match="line 2"):
        read_stream_records(tmp_path / "streams.jsonl")


def test_a_killed_run_keeps_its_streams(tmp_path):
    run = RunFolder(tmp_path / "machine" / "20010203T040506Z-abcdef012")
    for one in records(rounds=3):
        run.append(one)
    for one in at_once(4, [80.0, 81.0]):
        run.append_stream(one)
    run.write_plan(plan())
    run._streams.raw.write(b'{"batch": 4, "meas')
    run._file.close()
    folder = recover(run.path.rename(run.path.with_name(".20010203T040506Z-abcdef012.999999999")))
    assert [(p.batch, p.rounds) for p in read_streams(folder / "streams.json").points] == [(1, 3), (4, 2)]
    again = RunFolder.reopened(folder, read_records(folder / "records.jsonl"))
    again.append_stream(at_once(4, [82.0])[0])
    assert len(read_stream_records(again.finish() / "streams.jsonl")) == 3  # the half line is cut off


# -- a sweep ----------------------------------------------------------------------------------------------------------


def sweep(folder, *more):
    return bench("sweep", "--no-talker", *more, cwd=folder, COLUMNS="200")


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    result = sweep(
        folder, "--model", "synthetic:tiny", "--threads", "1", "--rounds", "2", "--frames", "3", "--batch", "1,2,4",
        "--variant-file", str(ODD), "--variants", "good,mixes_fours",
    )  # fmt: skip
    (run,) = folder.glob("reports/runs/*/*")
    return result, run


@pytest.mark.slow
def test_a_sweep_measures_what_was_asked_for_in_every_round(swept):
    _, run = swept
    found = read_stream_records(run / "streams.jsonl")
    good = [one for one in found if one.measured.variant == "good"]
    assert sorted((one.batch, one.measured.round) for one in good) == [(2, 0), (2, 1), (4, 0), (4, 1)]
    for one in good:
        assert one.measured.gate.detail == f"codes of all {3 * one.batch} timed frames are the golden's"
        assert len(one.measured.samples_ns) == 3
    points = {(p.variant, p.batch): p for p in read_streams(run / "streams.json").points}
    assert [batch for variant, batch in points if variant == "good"] == [1, 2, 4]
    assert all(points["good", batch].frames_per_s.p50 > 0 for batch in (1, 2, 4))
    assert json.loads((run / "plan.json").read_text())["batches"] == [2, 4]


@pytest.mark.slow
def test_what_mixes_utterances_has_no_time_for_it_and_the_exit_code_says_so(swept):
    result, run = swept
    assert result.returncode == 2, result.stderr
    points = {p.batch: p for p in read_streams(run / "streams.json").points if p.variant == "mixes_fours"}
    assert {batch: point.gate for batch, point in points.items()} == {1: "pass", 2: "pass", 4: "fail"}
    assert "of 4 at once: the first call gave other codes than the golden's" in points[4].detail
    assert points[4].frame_ms is None
    assert all(cell.gate == "pass" for cell in read_summary(run / "summary.json").cells)


@pytest.mark.slow
def test_terminal_and_reports_tell_them(swept):
    result, run = swept
    assert "frames/s" in result.stdout
    assert "mixes_fours × 1, 4 frames at once: fail: " in result.stdout
    for name in ("report.html", "report.md"):
        assert "Several utterances at once" in (run / name).read_text()


def test_an_option_that_is_no_list_of_numbers_is_refused(tmp_path):
    result = sweep(tmp_path, "--batch", "0,2")
    assert result.returncode == 1
    assert "--batch 0,2: batch must be at least 1" in result.stderr


def test_streams_have_a_schema():
    assert json.loads(Streams(points=[]).model_dump_json(by_alias=True))["schema"] == "cplab.streams/1"


def test_a_timed_record_is_a_single_frames_or_a_calls():
    with pytest.raises(ValidationError, match="greater than or equal to 2"):
        StreamRecord(batch=1, measured=timed([40]))
