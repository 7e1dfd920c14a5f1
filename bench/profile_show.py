"""A profile in words, rows and bars: on the terminal, and handed to `reports` as a page."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from bench.records import CellRecord, Profile
from cplab.commandline import console
from reports.profile_page import write_profile_html, write_profile_svg
from reports.profile_words import label_of, page
from reports.writing import replace_text

#: Columns of the terminal that a table of passes takes: for its labels, and for a pass.
_LABEL_WIDTH, _NUMBER_WIDTH = 11, 6


def print_profile(profile: Profile) -> None:
    """Table, passes and notes on the terminal."""
    shown = page(profile)
    console.print(f"{shown.title}, {profile.model}", highlight=False, markup=False)
    console.print(shown.headline, highlight=False, markup=False)
    console.print()
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(shown.columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*row, style="bold" if row is shown.rows[-1] else "")
    console.print(table)
    _print_passes(profile)
    console.print()
    for note in shown.notes:
        console.print(note, highlight=False, markup=False)


def _print_passes(profile: Profile) -> None:
    """Milliseconds by pass, in as many blocks of columns as the terminal's width asks for."""
    fit = max(1, (console.width - _LABEL_WIDTH) // _NUMBER_WIDTH)
    blocks = -(-profile.passes // fit)
    size = -(-profile.passes // blocks)
    for first in range(0, profile.passes, size):
        columns = range(first, min(first + size, profile.passes))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("ms in pass", no_wrap=True, min_width=_LABEL_WIDTH - 1)
        for index in columns:
            table.add_column(str(index + 1), justify="right", no_wrap=True, min_width=_NUMBER_WIDTH - 1)
        for part in profile.parts:
            if part.ms:
                table.add_row(label_of(part), *(_short(part.pass_ms[index]) for index in columns))
        totals = [sum(part.pass_ms[index] for part in profile.parts) for index in columns]
        table.add_row("sum", *(_short(ms) for ms in totals), style="bold")
        console.print()
        console.print(table)


def _short(ms: float) -> str:
    """At most five characters for anything below ten seconds."""
    return f"{ms:.3f}" if ms < 9.9995 else f"{ms:.2f}" if ms < 99.995 else f"{ms:.0f}"


def print_failure(record: CellRecord) -> None:
    """Why there is no profile."""
    told = record.reason or record.gate.detail
    console.print(
        f"{record.variant} x {record.threads}: {record.gate.status}: {told}", highlight=False, markup=False
    )  # fmt: skip


def write_files(profile: Profile, *, json: Path | None, html: Path | None, svg: Path | None) -> None:
    """The profile with its raw samples as JSON, as a page, and its plot alone; those that are asked for.

    Raises:
        OSError: a file cannot be written.
    """
    if json is not None:
        replace_text(json, f"{profile.model_dump_json(by_alias=True)}\n")
    if html is not None:
        write_profile_html(page(profile), html)
    if svg is not None:
        write_profile_svg(page(profile), svg)
