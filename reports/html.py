"""``report.html``: one file, no network, light and dark, for screens of any width and for paper."""

from __future__ import annotations

import re
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.bars import budget_sentence, frame_time_chart, roof_chart
from reports.page import Page, read_page
from reports.small_charts import pass_charts, scaling_charts
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
    environment = Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["keep_together"] = keep_together
    return environment.get_template("report.html.j2").render(
        page=page,
        answer=ANSWERS[page.verdict.real_time],
        frame_chart=frame_time_chart(page.summary),
        roof_chart=roof_chart(page.summary),
        scaling=scaling_charts(page.summary),
        passes=pass_charts(page.summary),
        step_chart=step_chart(page.summary),
        step_columns=COLUMNS,
        stream_columns=STREAM_COLUMNS,
        stream_explanation=EXPLANATION,
        stream_rows=stream_rows(page.streams),
        stream_notes=stream_notes(page.streams),
        stream_charts=stream_charts(page.streams),
        budget=budget_sentence(page.summary),
    )


def keep_together(text: str) -> str:
    """``text`` with no-break spaces between a figure and its unit, and inside an interval."""
    return re.sub(r"(?<=\d) (?=ms|thread|%)|(?<=,) (?=[\d.]+\])", "\N{NO-BREAK SPACE}", text)
