"""A profile as a page of its own, and its chart as a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reports.bar_drawing import Chart
from reports.rendering import rendered
from reports.stacked import Layer, stacked_chart, standalone
from reports.writing import replace_text


@dataclass(frozen=True, slots=True)
class ProfilePage:
    """A profile put into words and rows; no markup yet.

    Attributes:
        columns: names of columns, the first of which holds text.
        rows: entries; the last row is the sum.
        layers: milliseconds by pass of each part, in the order of the rows.
    """

    title: str
    subtitle: str
    headline: str
    notes: list[str]
    columns: list[str]
    rows: list[list[str]]
    layers: list[Layer]


def write_profile_html(page: ProfilePage, out: Path) -> None:
    """Write the page to ``out``: one file, no network, light and dark.

    Raises:
        OSError: ``out`` cannot be written.
    """
    replace_text(out, render_profile(page))


def write_profile_svg(page: ProfilePage, out: Path) -> None:
    """Write the chart alone to ``out``.

    Raises:
        OSError: ``out`` cannot be written.
        ValueError: no part has a time.
    """
    chart = chart_of(page)
    if chart is None:
        raise ValueError("a profile without times cannot be drawn")
    replace_text(out, standalone(chart.wide))


def render_profile(page: ProfilePage) -> str:
    """The whole document."""
    return rendered("profile.html.j2", page=page, chart=chart_of(page))


def chart_of(page: ProfilePage) -> Chart | None:
    """Milliseconds by pass, stacked by part; None where no part has a time."""
    return stacked_chart("parts", page.layers, "ms", f"{page.title}: milliseconds of each part in each pass")
