"""What a report shows of how sure its figures are: noise, drift, distributions, roofs. All figures are made up."""

import random

import pytest
from made_up_evidence import PASSED, evident, roofline, rounds_of, timed_record
from made_up_runs import broken, cell, interval, realistic, summary
from test_report_html import Document

from reports.ecdf import ecdf_charts
from reports.html import render_html
from reports.intervals import band_ms, interval_chart, noise_sentence
from reports.order_chart import drift_sentence, in_turn, order_chart
from reports.page import make_page
from reports.roofline_plot import roofline_plot
from reports.soak_chart import soak_chart, soak_sentence
from reports.spread_table import disturbances, energy_sentence, spread_table
from reports.wording import significant


def test_a_page_with_everything_is_sound_and_small():
    text = render_html(make_page(*evident()))
    document = Document(text)
    assert len(document.ids) == len(set(document.ids))
    assert set(document.references) <= set(document.ids)
    assert "#0102" not in text
    assert len(text.encode()) < 2_000_000
    for heading in ("How sure these times are", "In the order of the run", "Distribution of frame times", "Soak",
                    "Scatter and energy", "Disturbed measurements", "Roofline"):  # fmt: skip
        assert f">{heading}</h" in text


def test_the_noise_band_lies_around_the_fastest_exact_cell():
    run, _, _ = evident()
    low, high = band_ms(run)
    assert (low, high) == pytest.approx((66.04 / 1.021, 66.04 * 1.021))
    assert "A/A noise" in interval_chart(run).wide
    assert "2.10 %" in noise_sentence(run)


def test_without_an_a_a_there_is_no_band_and_it_is_said():
    assert band_ms(realistic()) is None
    assert "A/A noise" not in interval_chart(realistic()).wide
    assert "--aa" in noise_sentence(realistic())


def test_cells_without_times_have_no_interval():
    assert interval_chart(summary([broken()])) is None
    assert interval_chart(summary([cell(cp_ms=interval(0.0))])) is None
    assert "kv_q4_0" not in interval_chart(summary([cell(), broken()])).wide


def test_the_order_is_that_of_the_records_and_each_cell_is_beside_its_own_median():
    records = [
        timed_record("slow", 1, 0, 0, (100.0,)), timed_record("fast", 1, 0, 1, (10.0,)),
        timed_record("fast", 1, 1, 0, (11.0,)), timed_record("slow", 1, 1, 1, (102.0,)),
        timed_record("once", 1, 1, 2, (5.0,)),
    ]  # fmt: skip
    shown = in_turn(records)
    assert [one.round for one in shown] == [0, 0, 1, 1]
    assert [one.percent for one in shown] == pytest.approx([-100 / 101, -100 / 21, 100 / 21, 100 / 101])


def test_a_drift_of_one_percent_a_round_is_told():
    drifting = in_turn(list(rounds_of(realistic(), rounds=9, drift=0.01)))
    words = drift_sentence(drifting)
    assert words.endswith("slower.")
    assert 4.0 < float(words.split()[-3]) < 8.0  # six rounds lie between the two thirds
    assert drift_sentence(in_turn(list(rounds_of(realistic(), rounds=2)))) == ""


def test_disturbed_measurements_are_marked_and_far_ones_stay_on_the_chart():
    records = list(rounds_of(realistic()))
    assert sum(one.disturbed for one in in_turn(records)) == 1
    assert "1 disturbed" in order_chart(records).wide
    far = [*records, timed_record("kv_bf16", 2, 8, 0, (660.0,))]
    farthest = in_turn(far)[-1].percent
    assert farthest > 800
    assert f"to {significant(farthest)} %" in order_chart(far).wide
    assert order_chart([timed_record()]) is None


def test_a_distribution_ends_at_one_and_tells_its_quantiles():
    frames = [10.0 + 0.01 * number for number in range(100)]
    random.Random(1).shuffle(frames)
    (chart,) = ecdf_charts(summary([cell("v", 1, 10.5)]), [timed_record("v", 1, ms=frames)])
    assert chart.figures == "100 frames: median 10.5 ms, 99th percentile 11.0 ms, slowest 11.0 ms"
    assert ecdf_charts(summary([cell("v", 1, 10.5)]), [timed_record("v", 1, ms=(10.0,) * 4)]) == []


def test_frames_beyond_the_axis_are_counted():
    frames = [10.0] * 50 + [40.0, 50.0]
    (chart,) = ecdf_charts(summary([cell("v", 1, 10.0)]), [timed_record("v", 1, ms=frames)])
    assert chart.figures.endswith("; 2 beyond the axis")


def test_gated_out_records_are_in_no_distribution():
    wrong = timed_record("v", 1, ms=()).model_copy(update={"gate": PASSED.model_copy(update={"status": "fail"})})
    assert ecdf_charts(summary([cell("v", 1, 10.0)]), [wrong]) == []


def test_the_roofline_has_a_point_for_each_variant_and_a_row_for_each_point():
    run, _, roofs = evident()
    plot = roofline_plot(run, roofs)
    assert [row[0] for row in plot.table.rows] == ["1", "2", "3", "4", "5", "6", "7"]
    row = next(row for row in plot.table.rows if row[1] == "kv_bf16 × 2")
    assert row[2] == "1.00"  # 2 x 1.212e9 multiply-adds over 2.424e9 bytes
    assert row[3] == "36.7"  # 2 x 1.212e9 / 66.04 ms
    assert row[6] == "bandwidth"
    assert "40.8 GB/s from memory" in plot.roofs
    assert roofline_plot(run, None) is None
    assert roofline_plot(realistic(), roofs) is None, "cells that do not tell their work"


def test_a_cell_above_its_roof_is_called_suspect():
    run = summary([cell(p50=20.0, macs_per_frame=1_212_000_000)])
    assert "(above: suspect)" in roofline_plot(run, roofline()).table.rows[0][5]


def test_a_soak_tells_its_start_and_its_end():
    run, _, _ = evident()
    assert "(+4.2 %)" in soak_sentence(run.soak)
    assert soak_chart(None) is None


def test_scatter_energy_and_disturbances_are_told():
    run, _, _ = evident()
    assert len(spread_table(run).rows) == 11
    assert disturbances(run)[0] == "kv_f32 × 2, round 4: 12% of CPU time stolen by other guests"
    assert energy_sentence(run) == "No energy was measured: RAPL: the counters may be read by root only."
    with_joules = summary([cell(joules_per_frame=1.5)])
    assert energy_sentence(with_joules) == ""
    assert spread_table(with_joules).rows[0][7] == "1.50"
