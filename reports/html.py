"""``report.html``: one file, no network, light and dark, for screens of any width and for paper."""

from __future__ import annotations

from pathlib import Path

from reports.bars import budget_sentence, frame_time_chart, roof_chart
from reports.beside_engines import TITLE as ENGINES
from reports.ecdf import ecdf_charts
from reports.intervals import interval_chart, noise_sentence
from reports.order_chart import drift_sentence, in_turn, order_chart
from reports.page import Page, read_page
from reports.profile_page import chart_of
from reports.profile_words import page as profile_page
from reports.rendering import rendered
from reports.roofline_plot import roofline_plot
from reports.same_bits import TITLE as SAME_BITS
from reports.small_charts import pass_charts, scaling_charts
from reports.soak_chart import soak_chart, soak_sentence
from reports.sorting import content_policy, script
from reports.spread_table import disturbances, energy_sentence, spread_table
from reports.step_bars import step_chart
from reports.streams import COLUMNS as STREAM_COLUMNS
from reports.streams import EXPLANATION, stream_charts, stream_notes, stream_rows
from reports.talker_and_cp import COLUMNS
from reports.writing import replace_text

ANSWERS = {"yes": "real time", "no": "not real time", "close": "too close to call", "unknown": "real time not judged"}


def write_html(run_dir: Path, out: Path) -> None:
    """Write the HTML report of ``run_dir`` to ``out``.

    Raises:
        bench.records.UnreadableRecordError: the run folder cannot be read; nothing is written.
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_html(read_page(run_dir)))


def render_html(page: Page) -> str:
    """The whole document."""
    shown_script = script()
    summary = page.summary
    profile = profile_page(page.profile) if page.profile else None
    return rendered(
        "report.html.j2",
        page=page,
        answer=ANSWERS[page.verdict.real_time],
        frame_chart=frame_time_chart(summary),
        roof_chart=roof_chart(summary),
        scaling=scaling_charts(summary),
        passes=pass_charts(summary),
        budget=budget_sentence(summary),
        script=shown_script,
        policy=content_policy(shown_script),
        intervals=interval_chart(summary),
        noise=noise_sentence(summary),
        order=order_chart(page.records),
        drift=drift_sentence(in_turn(page.records)),
        distributions=ecdf_charts(summary, page.records),
        soak=soak_chart(summary.soak),
        soak_told=soak_sentence(summary.soak) if summary.soak else "",
        spread=spread_table(summary),
        disturbances=disturbances(summary),
        energy=energy_sentence(summary),
        profile=profile,
        profile_chart=chart_of(profile) if profile else None,
        roofline=roofline_plot(summary, page.roofline),
        step_chart=step_chart(summary),
        step_columns=COLUMNS,
        same_bits_title=SAME_BITS,
        engines_title=ENGINES,
        stream_columns=STREAM_COLUMNS,
        stream_explanation=EXPLANATION,
        stream_rows=stream_rows(page.streams),
        stream_notes=stream_notes(page.streams),
        stream_charts=stream_charts(page.streams),
    )
