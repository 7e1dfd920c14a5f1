"""The commands that tell of runs and measure nothing: ``report`` and ``history``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from bench.cli_options import Variants
from cplab.cachedir import require_writable
from cplab.commandline import GOOD, console
from cplab.errors import CplabError

_BESIDE = "side-by-side"


def report(
    folders: Annotated[list[Path], typer.Argument(help="A run's folder; several stand side by side.")],
    html: Annotated[Path | None, typer.Option(help="Where the page goes.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Where the Markdown goes.")] = None,
) -> int:
    """Write a run's report again, of a killed run its summary and name first; or put several runs side by side."""
    import reports
    from bench.records import UnreadableRecordError
    from bench.unfinished import recover

    for path in (html, markdown):
        if path is not None:
            require_writable(path)
    try:
        if len(folders) > 1:
            return _side_by_side([recover(folder) for folder in folders], html, markdown)
        folder = recover(folders[0])
        if html is None and markdown is None:
            html, markdown = folder / "report.html", folder / "report.md"
        for target, write in ((html, reports.write_html), (markdown, reports.write_markdown)):
            if target is not None:
                write(folder, target)
                console.print(str(target), highlight=False, soft_wrap=True)
    except UnreadableRecordError as error:
        raise CplabError(str(error)) from error
    return GOOD


def _side_by_side(folders: list[Path], html: Path | None, markdown: Path | None) -> int:
    from reports.beside import read_beside
    from reports.figures_page import write_figures_html, write_figures_markdown

    if len({folder.resolve() for folder in folders}) < len(folders):
        raise CplabError("the same run twice: name different ones")
    try:
        page = read_beside(folders, _command())
    except ValueError as error:
        raise CplabError(str(error)) from error
    if html is None and markdown is None:
        html, markdown = Path(f"{_BESIDE}.html"), Path(f"{_BESIDE}.md")
    for target, write in ((html, write_figures_html), (markdown, write_figures_markdown)):
        if target is not None:
            write(page, target)
            console.print(str(target), highlight=False, soft_wrap=True)
    return GOOD


def history(
    runs: Annotated[Path, typer.Option("--runs", help="Folder of runs.")] = Path("reports/runs"),
    machine: Annotated[str, typer.Option(help="Whose runs; default: this machine's.")] = "",
    model: Annotated[str, typer.Option("--model", help="Whose runs; default: the newest run's.")] = "",
    variants: Variants = "",
    threshold: Annotated[str, typer.Option(help="The least change that counts.")] = "2%",
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with a plot over commits there.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Write a table there.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the plot there.")] = None,
) -> int:
    """Tell what each variant took, run by run; changes are flagged where two runs in a row agree."""
    from bench.compare_show import share_of
    from bench.history import history_of
    from bench.history_show import page, print_history, write_files
    from bench.machine import machine_id

    least_change = share_of(threshold)
    for path in (html, markdown, svg):
        if path is not None:
            require_writable(path)
    whose = machine or machine_id()
    names = [name.strip() for name in variants.split(",") if name.strip()]
    found = history_of(runs / whose, model=model, variants=names, least_change=least_change)
    shown = page(found, whose, _command())
    print_history(found, shown)
    write_files(shown, html=html, markdown=markdown, svg=svg)
    return GOOD


def _command() -> str:
    return " ".join(["python -m bench", *sys.argv[1:]])
