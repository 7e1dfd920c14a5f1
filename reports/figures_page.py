"""A page of a headline, one chart and sortable tables: over the runs of one machine, or of several side by side."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from reports.bar_drawing import Chart
from reports.figure_table import FigureTable
from reports.markdown import bounded, code_block, escape, table_of
from reports.rendering import rendered
from reports.sorting import content_policy, script
from reports.stacked import standalone
from reports.writing import replace_text


@dataclass(frozen=True, slots=True)
class Section:
    """A table under a heading; ``anchor`` is its id in the page, ``hint`` says how to read it."""

    anchor: str
    heading: str
    table: FigureTable
    hint: str = ""


@dataclass(frozen=True, slots=True)
class FiguresPage:
    """Figures put into words, rows and a chart; no markup yet but the chart's own.

    Attributes:
        caption: what the chart shows.
        has_dots: the chart tells exact from not exact by filled and hollow marks, which its key then says.
        command: what makes the page again.
    """

    title: str
    subtitle: str
    headline: str
    notes: list[str]
    caption: str
    chart: Chart | None
    sections: list[Section]
    has_dots: bool = False
    command: str = ""
    how_to_read: tuple[str, ...] = field(default_factory=tuple)


def write_figures_html(page: FiguresPage, out: Path) -> None:
    """Write the page to ``out``: one file, no network, light and dark.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_figures(page))


def write_figures_markdown(page: FiguresPage, out: Path) -> None:
    """Write the page's words and tables to ``out``.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, figures_markdown(page))


def write_figures_svg(page: FiguresPage, out: Path) -> None:
    """Write the chart alone to ``out``.

    Raises:
        OSError: ``out`` cannot be written.
        ValueError: there is nothing to draw.
    """
    if page.chart is None:
        raise ValueError(f"{page.title}: no figure in it can be drawn")
    replace_text(out, standalone(page.chart.wide))


def render_figures(page: FiguresPage) -> str:
    """The whole document."""
    shown = script()
    return rendered("figures_page.html.j2", page=page, script=shown, policy=content_policy(shown))


def figures_markdown(page: FiguresPage) -> str:
    """The page as GitHub Markdown, without its chart."""
    parts = [
        f"# {escape(page.title)}",
        escape(page.subtitle),
        f"**{escape(page.headline)}**",
        _list(page.notes),
    ]
    for section in page.sections:
        right = [not heading.is_text for heading in section.table.headings]
        names = [heading.name for heading in section.table.headings]
        parts += [f"## {escape(section.heading)}", escape(section.hint), table_of(names, section.table.rows, right)]
    if page.command:
        parts += ["## How to make this again", code_block(page.command)]
    if page.how_to_read:
        parts += ["## How to read these figures", _list(page.how_to_read)]
    return bounded("\n\n".join(part for part in parts if part) + "\n")


def _list(texts: list[str] | tuple[str, ...]) -> str:
    return "\n".join(f"- {escape(text)}" for text in texts)
