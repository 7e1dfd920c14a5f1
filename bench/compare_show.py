"""A comparison in words: on the terminal, as Markdown for a pull request, and as an exit code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from bench.compared import SLOWER, UNDECIDED, Compared, ComparedCell
from bench.comparison import in_words
from bench.records import Interval, Ratio
from cplab.cachedir import replacing
from cplab.commandline import GATE_FAILED, GOOD, WRONG_USE, console, print_whole, whole_width
from cplab.errors import CplabError
from reports.wording import NOTHING, difference, milliseconds, significant, times

_HEADINGS = ("cell", "A", "B", "B / A [95 %]", "p", "rounds", "B is")


def share_of(text: str) -> float:
    """``2%``, ``2 %`` or ``0.02`` as a share.

    Raises:
        CplabError: it is none between 0 and 1.
    """
    number, sign, rest = text.partition("%")
    try:
        share = float(number) / (100 if sign else 1)
    except ValueError:
        share = math.nan
    if rest.strip() or not 0 <= share < 1:
        raise CplabError(f"--threshold {text}: a share is wanted, such as 2% or 0.02")
    return share


def exit_code(found: Compared) -> int:
    """0 same or faster; 2 a gate failed or a cell crashed; 4 B is slower; 3 undecided, or nothing to compare."""
    if found.wrong:
        return GATE_FAILED
    verdicts = {cell.found.verdict for cell in found.cells if cell.found}
    if found.interrupted:
        return WRONG_USE
    if "slower" in verdicts:
        return SLOWER
    return UNDECIDED if not verdicts or "undecided" in verdicts else GOOD


def print_comparison(found: Compared) -> None:
    """The table, and below it what a reader must know."""
    if found.cells:
        for shown in _tables(found.cells, console.width if console.is_terminal else None):
            print_whole(shown, console)
    for line in _below(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if found.folder is not None:
        console.print(f"records: {found.folder}", highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(headline(found), highlight=False, markup=False, soft_wrap=True)


def _tables(cells: Sequence[ComparedCell], width: int | None) -> list[Table]:
    """A line a cell; a block of lines for each where that is wider than a terminal, as no word is to be cut.

    Args:
        cells: what was compared.
        width: of the terminal; None for no limit.
    """
    lines = Table(box=None, pad_edge=False)
    for heading in _HEADINGS:
        lines.add_column(heading, no_wrap=True)
    for cell in cells:
        lines.add_row(*_entries(cell))
    if width is None or whole_width(lines, console) <= width:
        return [lines]
    blocks = []
    for cell in cells:
        block = Table(box=None, pad_edge=False, show_header=False)
        block.add_column(no_wrap=True)
        block.add_column(overflow="fold")
        for heading, entry in zip(_HEADINGS, _entries(cell), strict=True):
            block.add_row(heading, entry)
        block.add_row("", "")
        blocks.append(block)
    return blocks


def write_markdown(found: Compared, path: Path) -> None:
    """The same as a table for a pull request."""
    lines = [f"### {_safe(headline(found))}", ""]
    if found.cells:
        lines += [_row(_HEADINGS), _row(["---"] * len(_HEADINGS))]
        lines += [_row(_entries(cell)) for cell in found.cells]
        lines.append("")
    lines += [f"- {_safe(line)}" for line in _below(found)]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def headline(found: Compared) -> str:
    """One sentence: what B is."""
    judged = [cell for cell in found.cells if cell.found]
    if found.wrong:
        return "Not compared: what is wrong has no time."
    if not judged:
        return "Nothing to compare."
    if len(judged) == 1 and judged[0].found:
        return f"{judged[0].found.b} beside {judged[0].found.a}: {in_words(judged[0].found)}."
    counts = [
        f"{number} {verdict}"
        for verdict in ("slower", "undecided", "same", "faster")
        if (number := sum(cell.found is not None and cell.found.verdict == verdict for cell in judged))
    ]
    return f"{found.b} beside {found.a}: of {len(judged)} cells {', '.join(counts)}."


def _below(found: Compared) -> list[str]:
    lines = [f"A: {found.a}; B: {found.b}; figures: {found.unit}"]
    limits = sorted({cell.found.limit for cell in found.cells if cell.found})
    if limits:
        told = " to ".join(difference(limit) for limit in dict.fromkeys((limits[0], limits[-1])))
        lines.append(f"a change counts beyond {told}, where its interval excludes 1 and p is at most 0.05")
    if any(cell.found.too_noisy for cell in found.cells if cell.found):
        lines.append(
            "this machine is too noisy to tell: one cell differs from itself by half or more here (A/A); python -m "
            "bench doctor says what disturbs it, and more rounds (--time-budget, --rounds) narrow it"
        )
    notes = dict.fromkeys(cell.found.note for cell in found.cells if cell.found and cell.found.note)
    return [*lines, *found.notes, *notes, *found.wrong]


def _entries(cell: ComparedCell) -> list[str]:
    head = [cell.name, _figure(cell.a), _figure(cell.b)]
    if cell.found is None:
        return [*head, NOTHING, NOTHING, NOTHING, NOTHING]
    found = cell.found
    p = NOTHING if found.p is None else "< 0.001" if found.p < 0.001 else significant(found.p)
    return [*head, times(found.ratio), p, str(found.rounds), in_words(found)]


def _figure(figure: Interval | Ratio | None) -> str:
    if figure is None:
        return NOTHING
    return milliseconds(figure) if isinstance(figure, Interval) else times(figure)


def _row(entries: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(_safe(entry) for entry in entries)} |"


def _safe(text: str) -> str:
    """Without what Markdown would take for a mark of its own."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
