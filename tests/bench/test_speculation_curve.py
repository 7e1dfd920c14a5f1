"""The curve of speculation: real passes, a set share of drafts that hold, and no time for what is wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest

from bench import speculation
from bench.records import CellRecord, CurvePoint, GateOutcome, Interval, Ratio, read_speculation
from bench.speculation_note import speculation_note
from cplab.commandline import GATE_FAILED, GOOD, WRONG_USE, run
from cplab.sources import load_model
from cplab.speculation.decoder import SpeculativeDecoder
from cplab.speculation.draft_length import DraftLength, Lengths

MODEL = "synthetic:tiny-predictable"


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(speculation, "LEARNING", 4)


@pytest.mark.usefixtures("short")
def test_each_share_has_a_point_and_the_models_own_drafts_are_the_last():
    curve = speculation.measured_curve(load_model(MODEL), "bf16", 1, 12, [0.0, 1.0])
    plain, points = curve.plain_ms, curve.points
    assert curve.variant == "spec_bf16"
    assert 0 < curve.draft < 0.5
    assert not curve.draft_timed  # heads cost what their bytes say
    assert [point.share for point in points] == [0.0, 1.0, None]
    assert [point.held for point in points[:2]] == [0.0, 1.0]
    assert 0.6 < points[2].held < 0.9
    assert points[0].codes_per_pass == 1
    assert points[0].passes_per_frame == 15
    for point in points:
        assert point.codes_per_pass * point.passes_per_frame == pytest.approx(15)
        assert point.ms.lo <= point.ms.p50 <= point.ms.hi
    assert plain.p50 > 0


@pytest.mark.usefixtures("short")
def test_the_command_prints_a_row_for_each(capsys):
    from bench.cli import app

    arguments = ["speculation", "--model", MODEL, "-t", "1", "--rounds", "3", "--shares", "0,0.5", "--format", "q8_0"]
    assert run(app, arguments) == GOOD
    out = capsys.readouterr().out
    assert "speculation over q8_0 on 1 threads" in out
    assert [line.split()[0] for line in out.splitlines()[2:5]] == ["0.00", "0.50", "own"]
    assert "for its owner to measure" in out


@pytest.mark.usefixtures("short")
def test_a_model_that_drafts_has_its_curve_and_what_a_draft_takes(capsys):
    from bench.cli import app

    arguments = ["speculation", "--model", MODEL, "-t", "1", "--rounds", "3", "--shares", "0,1", "--drafter", "q4_0"]
    assert run(app, arguments) == GOOD
    out = capsys.readouterr().out
    assert "speculation over bf16, drafts by q4_0 on 1 threads" in out
    rows = [line.split()[0] for line in out.splitlines() if line.strip()]
    assert rows[rows.index("right") + 1 :][:3] == ["0.00", "1.00", "own"]
    assert "passes over the layers here" in out.replace("\n", " ")
    takes, pays = re.search(r"A draft takes ([\d.]+) passes.* more than (\d+)%", out.replace("\n", " ")).groups()
    assert abs(100 * float(takes) - int(pays)) <= 1


@pytest.mark.usefixtures("short")
def test_where_no_draft_was_asked_for_nothing_is_said_to_have_held(monkeypatch, tmp_path, capsys):
    from bench.cli import app

    def none(self):
        nothing = np.zeros(self.passes, np.int64)
        return Lengths(nothing, nothing, 0)

    monkeypatch.setattr(DraftLength, "lengths", none)
    asked = ["speculation", "--model", MODEL, "-t", "1", "--rounds", "3", "--shares", "0.5", "--out", str(tmp_path)]
    assert run(app, asked) == GOOD
    out = capsys.readouterr().out
    assert [line.split()[:2] for line in out.splitlines()[2:4]] == [["0.50", "-"], ["own", "-"]]
    assert "no draft was asked for" in out
    (kept,) = read_speculation(tmp_path / "speculation.json").curves
    assert [point.held for point in kept.points] == [None, None]


def test_tenths_of_a_millisecond_are_told_below_a_hundred(capsys):
    def told(ms):
        interval = Interval(p50=ms, lo=ms, hi=ms, min=ms)
        point = CurvePoint(
            share=1.0, held=1.0, codes_per_pass=2.0, passes_per_frame=7.5, ms=interval,
            speedup=Ratio(ratio=1.0, lo=1.0, hi=1.0),
        )  # fmt: skip
        speculation.show(speculation.Curve("spec_bf16", interval, [point], 0.1, True), "bf16", "a curve")
        return capsys.readouterr().out

    assert told(1.24).count("1.2 [1.2, 1.2]") == 1
    assert told(99.94).count("99.9") == 6
    assert "100 [100, 100]" in told(99.96)


def test_a_drafter_that_is_no_format_is_one_line(capsys):
    from bench.cli import app

    assert run(app, ["speculation", "--model", MODEL, "-t", "1", "--drafter", "q9"]) == WRONG_USE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("short")
def test_a_curve_is_kept_beside_others_and_the_newest_of_its_kind_stays(tmp_path, capsys):
    from bench.cli import app

    def kept(*more):
        asked = ["speculation", "--model", MODEL, "-t", "1", "--rounds", "3", "--shares", "1", "--out", str(tmp_path)]
        assert run(app, [*asked, *more]) == GOOD
        assert str(tmp_path / "speculation.json") in capsys.readouterr().out.replace("\n", "")
        return read_speculation(tmp_path / "speculation.json").curves

    (first,) = kept()
    assert (first.variant, first.plain, first.threads, first.rounds) == ("spec_bf16", "kv_bf16", 1, 3)
    assert first.digest == load_model(MODEL).digest()
    assert [point.share for point in first.points] == [1.0, None]
    assert [one.variant for one in kept("--format", "bf12")] == ["spec_bf16", "spec_bf12"]
    again = kept("--rounds", "4")
    assert [(one.variant, one.rounds) for one in again] == [("spec_bf12", 3), ("spec_bf16", 4)]


def test_a_place_that_cannot_keep_a_curve_is_refused_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    from bench.cli import app

    monkeypatch.setattr(speculation, "measured_curve", None)
    (tmp_path / "speculation.json").write_text('{"schema": "cplab.speculation/99"}')
    (tmp_path / "file").write_text("")
    for place in (tmp_path, tmp_path / "file" / "below"):
        assert run(app, ["speculation", "--model", MODEL, "-t", "1", "--out", str(place)]) == WRONG_USE
        assert capsys.readouterr().err.count("\n") == 1
    assert "cplab.speculation/99" in (tmp_path / "speculation.json").read_text()


@pytest.mark.parametrize("shares", ["x", "1.5", "-1", "0.5,,1"])
def test_what_is_no_share_is_one_line(capsys, shares):
    from bench.cli import app

    assert run(app, ["speculation", "--model", MODEL, "-t", "1", "--shares", shares]) == WRONG_USE
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.usefixtures("short")
def test_nothing_is_timed_that_is_wrong(capsys, monkeypatch):
    from bench.cli import app

    class Wrong(SpeculativeDecoder):
        def predict(self, *arguments, **options):
            return (super().predict(*arguments, **options) + (self._given is not None)).astype(np.int32) % 256

    monkeypatch.setattr(speculation, "SpeculativeDecoder", Wrong)
    assert run(app, ["speculation", "--model", MODEL, "-t", "1", "--rounds", "3"]) == GATE_FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert "spec_bf16 x 1: speculation:" in err


def record(facts):
    return CellRecord(
        variant="spec_bf16", threads=1, model=MODEL, round=0, order=0, phase="timed",
        gate=GateOutcome(status="pass", detail=""), facts={"speculation": facts},
    )  # fmt: skip


def test_a_note_sums_over_workers():
    first = {"frames": 10, "passes_per_frame": 1.5, "asked": [0, 4, 0], "held": [0, 4, 0]}
    second = {"frames": 30, "passes_per_frame": 2.5, "asked": [0, 4, 0], "held": [0, 2, 0]}
    note = speculation_note([record(first), record(second), record(None)])
    assert note == "1.33 codes a pass, 2.2 passes a frame; drafts held, by codebook from 2 on: 0.75 -"
    assert speculation_note([record(None)]) == ""
    from_the_first = {"frames": 10, "passes_per_frame": 1.5, "asked": [4, 4, 0], "held": [1, 4, 0]}
    assert "from 1 on: 0.25 1.00 -" in speculation_note([record(from_the_first)])
