"""A history as a page, and its plot as a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.bar_drawing import Chart
from reports.figure_table import FigureTable
from reports.history_chart import Line, history_chart
from reports.html import keep_together
from reports.sorting import content_policy, script
from reports.stacked import standalone
from reports.writing import replace_text


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A history put into words and rows; no markup yet. ``runs`` are labels, oldest first."""

    title: str
    subtitle: str
    headline: str
    notes: list[str]
    runs: list[str]
    lines: list[Line]
    table: FigureTable


def write_history_html(page: HistoryPage, out: Path) -> None:
    """Write the page to ``out``: one file, no network, light and dark.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_history(page))


def write_history_svg(page: HistoryPage, out: Path) -> None:
    """Write the plot alone to ``out``.

    Raises:
        OSError: ``out`` cannot be written.
        ValueError: there is no line to draw.
    """
    chart = _chart(page)
    if chart is None:
        raise ValueError("a history without runs cannot be drawn")
    replace_text(out, standalone(chart.wide))


def render_history(page: HistoryPage) -> str:
    """The whole document."""
    return render_figures(page, _chart(page))


def render_figures(page: object, chart: Chart | None) -> str:
    """A page of a headline, a chart and a sortable table (`figures_page.html.j2`)."""
    environment = Environment(
        loader=PackageLoader("reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["keep_together"] = keep_together
    shown = script()
    return environment.get_template("figures_page.html.j2").render(
        page=page, chart_drawn=chart, script=shown, policy=content_policy(shown)
    )


def _chart(page: HistoryPage) -> Chart | None:
    return history_chart(page.lines, page.runs)
