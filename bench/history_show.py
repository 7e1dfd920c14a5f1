"""A history in words, rows and points: on the terminal, and handed to `reports` as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rich.table import Table

from bench.history import Course, History, Moment, Run
from cplab.commandline import console
from reports.figure_table import FigureTable, Heading
from reports.figures_page import FiguresPage, Section, write_figures_html, write_figures_markdown, write_figures_svg
from reports.history_chart import Line, Point, history_chart
from reports.wording import NOTHING, milliseconds, percent, plural, significant, times

HEADINGS = (
    Heading("variant", "with its thread count", is_text=True, names_row=True),
    Heading("started (UTC)", is_text=True),
    Heading("commit", "with + where files differed from it", is_text=True),
    Heading("ms a frame [95 %]", "median over rounds"),
    Heading("speed vs baseline", "of the same run"),
    Heading("of roof", "share of the best read-only speed over the same bytes"),
    Heading("this run alone", "beside the run that it is held against", is_text=True),
    Heading("flag", "two runs in a row agree", is_text=True),
)
#: Columns that fit a terminal of 80.
_TERMINAL: dict[str, Literal["left", "right"]] = {
    "started (UTC)": "left",
    "commit": "left",
    "ms a frame [95 %]": "right",
    "vs base": "right",
    "of roof": "right",
    "verdict": "left",
}


def page(history: History, machine: str, command: str = "") -> FiguresPage:
    """The history put into words, rows and a plot."""
    at = {run.folder: index for index, run in enumerate(history.runs)}
    lines = [Line(name_of(course), course.moments[-1].cell.exact, _points(course, at)) for course in history.courses]
    rows = [_row(course, one) for course in history.courses for one in course.moments]
    return FiguresPage(
        title="What the code predictor took, run by run",
        subtitle=f"{machine} · {history.model}",
        headline=headline(history),
        notes=notes(history),
        caption="Each variant over the commits of the runs, oldest first: medians with 95 % intervals. "
        "Changes are flagged by the speed beside each run's own baseline, which cancels what the machine did.",
        chart=history_chart(lines, [commit_of(run) for run in history.runs]),
        sections=[Section("figures", "Figures", FigureTable(HEADINGS, rows))],
        has_dots=True,
        command=command,
    )


def headline(history: History) -> str:
    """One sentence: what changed."""
    flags = [(course, one) for course in history.courses for one in course.moments if one.flag]
    told = f"{plural(len(history.runs), 'run')}, {plural(len(history.courses), 'variant')}"
    if not flags:
        return f"{told}: no change on which two runs in a row agree."
    found = "; ".join(f"{name_of(course)} {one.flag} from {commit_of(one.run)} on" for course, one in flags)
    return f"{told}: {found}."


def notes(history: History) -> list[str]:
    """What a reader must know."""
    return [
        "Runs are not interleaved. Each is held against an earlier one by the rules of bench compare RUN RUN, and a "
        "change is flagged only where the next run says the same; what one run says alone may be the machine's doing.",
        *(f"Left out: {text}" for text in history.passed_over),
    ]


def print_history(history: History, shown: FiguresPage) -> None:
    """A line a run, variant by variant."""
    console.print(f"{shown.title}: {shown.subtitle}", highlight=False, markup=False)
    for course in history.courses:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=name_of(course), title_justify="left")
        for name, justify in _TERMINAL.items():
            table.add_column(name, justify=justify, no_wrap=name != "verdict")
        for moment in course.moments:
            table.add_row(*_terminal_row(moment), style="bold" if moment.flag else "")
        console.print()
        console.print(table)
    console.print()
    for text in [*shown.notes[1:], shown.headline]:
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def write_files(shown: FiguresPage, *, html: Path | None, markdown: Path | None, svg: Path | None) -> None:
    """The page, its Markdown and the plot alone; those that are asked for.

    Raises:
        OSError: a file cannot be written.
    """
    if html is not None:
        write_figures_html(shown, html)
    if markdown is not None:
        write_figures_markdown(shown, markdown)
    if svg is not None:
        write_figures_svg(shown, svg)


def name_of(course: Course) -> str:
    """``kv_bf16 × 2``."""
    return f"{course.variant} × {course.threads}"


def commit_of(run: Run) -> str:
    """The commit, with a + where files differed from it."""
    return f"{run.summary.run.commit}{'+' if run.summary.run.dirty else ''}"


def _points(course: Course, at: dict[Path, int]) -> list[Point]:
    return [
        Point(at[one.run.folder], one.cell.cp_ms.p50, one.cell.cp_ms.lo, one.cell.cp_ms.hi, one.flag)
        for one in course.moments
        if one.cell.cp_ms is not None
    ]


def _row(course: Course, moment: Moment) -> list[str]:
    cell, run = moment.cell, moment.run.summary.run
    return [
        name_of(course),
        run.started_utc,
        commit_of(moment.run),
        milliseconds(cell.cp_ms),
        times(cell.speedup_vs_baseline),
        percent(cell.roof_fraction),
        moment.verdict or NOTHING,
        moment.flag or NOTHING,
    ]


def _terminal_row(moment: Moment) -> list[str]:
    speed = moment.cell.speedup_vs_baseline
    return [
        moment.run.summary.run.started_utc[:16].replace("T", " "),
        commit_of(moment.run),
        milliseconds(moment.cell.cp_ms),
        NOTHING if speed is None else f"{significant(speed.ratio)}×",
        percent(moment.cell.roof_fraction),
        f"{moment.flag}, flagged" if moment.flag else moment.verdict or NOTHING,
    ]
