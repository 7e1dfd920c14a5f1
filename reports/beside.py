"""``bench report RUN_A RUN_B ...``: runs side by side, of one machine or of several.

Absolute times of two machines are shown and not judged; what may be compared is each variant's speed over its own
run's baseline, and how much of its own roof it reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase

from bench.records import CellSummary, Summary, read_summary
from reports.bars import best_cells
from reports.beside_chart import Group, Mark, beside_chart
from reports.facts import machine_name
from reports.figure_table import FigureTable, Heading
from reports.figures_page import FiguresPage, Section
from reports.verdict import describe, fastest
from reports.wording import NOTHING, milliseconds, one_line, percent, significant, times

MOST_RUNS = len(ascii_uppercase)

HOW_TO_READ = (
    "A time is the median over rounds at the variant's fastest thread count; brackets hold 95 % intervals.",
    "Speed is over the baseline of the same run, paired by round, so that it holds whatever else the machine did.",
    "Of roof is the share of the best read-only speed over the same bytes on the same machine.",
    "Runs are not interleaved, so nothing is judged here; python -m bench compare RUN RUN judges two of one machine.",
)

_RUN_HEADINGS = (
    Heading("run", is_text=True, names_row=True),
    Heading("machine", is_text=True),
    Heading("model", is_text=True),
    Heading("baseline", "what speeds of this run are over", is_text=True),
    Heading("fastest exact", is_text=True),
    Heading("rounds", "each cell's processes"),
    Heading("started (UTC)", is_text=True),
    Heading("commit", "with + where files differed from it", is_text=True),
    Heading("folder", is_text=True),
)

LettersAndRuns = list[tuple[str, Summary]]


def read_beside(folders: Sequence[Path], command: str = "") -> FiguresPage:
    """Read run folders, wherever they were made.

    Raises:
        bench.records.UnreadableRecordError: one has no ``summary.json`` that this version reads.
        ValueError: fewer than two, or more than there are letters.
    """
    if not 2 <= len(folders) <= MOST_RUNS:
        raise ValueError(f"{len(folders)} runs: from 2 to {MOST_RUNS} can stand side by side")
    return make_beside([(folder.name, read_summary(folder / "summary.json")) for folder in folders], command)


def make_beside(named: Sequence[tuple[str, Summary]], command: str = "") -> FiguresPage:
    """Put runs side by side; ``named`` are (folder's name, summary), called A, B, ... in this order."""
    runs = [(letter, summary) for letter, (_, summary) in zip(ascii_uppercase, named, strict=False)]
    names = [name for name, _ in named]
    machines = list(dict.fromkeys(_machine(summary) for _, summary in runs))
    by_variant = _by_variant(runs)
    return FiguresPage(
        title="Runs of the code predictor side by side",
        subtitle=" · ".join(machines),
        headline=_headline(runs),
        notes=_notes(runs),
        caption="Each variant's speed over its own run's baseline, with 95 % intervals; the upright line is the "
        "baseline. Letters are runs.",
        chart=beside_chart(_groups(by_variant)),
        sections=[
            Section("runs", "Runs", FigureTable(_RUN_HEADINGS, _run_rows(runs, names))),
            Section(
                "figures",
                "Variants",
                FigureTable(_headings(runs), _rows(runs, by_variant)),
                "Each variant at its fastest thread count of each run; × is the thread count.",
            ),
        ],
        has_dots=True,
        command=command,
        how_to_read=HOW_TO_READ,
    )


def _by_variant(runs: LettersAndRuns) -> dict[str, dict[str, CellSummary]]:
    """For each variant the best cell of each run that timed it; variants by their time in the first run that did."""
    found: dict[str, dict[str, CellSummary]] = {}
    for letter, summary in runs:
        for cell in best_cells(summary):
            found.setdefault(cell.variant, {})[letter] = cell
    return found


def _groups(by_variant: dict[str, dict[str, CellSummary]]) -> list[Group]:
    groups = [
        Group(
            variant,
            [
                Mark(letter, cell.speedup_vs_baseline, cell.exact)
                for letter, cell in cells.items()
                if cell.speedup_vs_baseline is not None and cell.speedup_vs_baseline.lo > 0
            ],
        )
        for variant, cells in by_variant.items()
    ]
    return sorted(
        (group for group in groups if group.marks), key=lambda group: -max(mark.ratio.ratio for mark in group.marks)
    )


def _headline(runs: LettersAndRuns) -> str:
    told = []
    for letter, summary in runs:
        best = fastest([cell for cell in summary.cells if cell.exact])
        told.append(f"{letter}: {_best(best)}" if best else f"{letter}: no exact variant was timed")
    return f"Fastest exact. {'; '.join(told)}."


def _best(cell: CellSummary) -> str:
    ratio = cell.speedup_vs_baseline
    speed = "" if ratio is None else f", {significant(ratio.ratio)}× its baseline"
    return f"{describe(cell)}, {milliseconds(cell.cp_ms)} ms{speed}"


def _notes(runs: LettersAndRuns) -> list[str]:
    notes = []
    letters = [letter for letter, _ in runs]
    if len({_machine(summary) for _, summary in runs}) > 1:
        notes.append(
            "The runs are of different machines: milliseconds do not compare, speeds over each one's own baseline do."
        )
    else:
        notes.append("The runs are of one machine, as far as their records tell, but were not interleaved.")
    if len({summary.model.digest for _, summary in runs}) > 1:
        told = ", ".join(
            f"{letter} {one_line(summary.model.name, 80)}" for letter, (_, summary) in zip(letters, runs, strict=True)
        )
        notes.append(f"The runs are of different weights ({told}): no figure of one says anything of another's.")
    if len({summary.baseline for _, summary in runs}) > 1:
        told = ", ".join(f"{letter} {one_line(summary.baseline, 80)}" for letter, summary in runs)
        notes.append(f"Their baselines differ ({told}): speeds over them do not compare.")
    if any(summary.run.interrupted for _, summary in runs):
        notes.append(f"Interrupted: {', '.join(letter for letter, summary in runs if summary.run.interrupted)}.")
    return notes


def _run_rows(runs: LettersAndRuns, names: Sequence[str]) -> list[list[str]]:
    return [
        [
            letter,
            _machine(summary),
            one_line(summary.model.name, 80),
            one_line(summary.baseline, 80),
            _fastest_exact(summary),
            str(summary.run.rounds),
            one_line(summary.run.started_utc, 40),
            f"{one_line(summary.run.commit, 40)}{'+' if summary.run.dirty else ''}",
            one_line(name, 120),
        ]
        for (letter, summary), name in zip(runs, names, strict=True)
    ]


def _fastest_exact(summary: Summary) -> str:
    best = fastest([cell for cell in summary.cells if cell.exact])
    return f"{one_line(best.variant, 80)} × {best.threads}" if best else NOTHING


def _headings(runs: LettersAndRuns) -> tuple[Heading, ...]:
    found = [Heading("variant", is_text=True, names_row=True), Heading("exact", is_text=True)]
    for letter, summary in runs:
        found += [
            Heading(f"{letter}: ms a frame [95 %]", f"{_machine(summary)}, median over rounds"),
            Heading(f"{letter}: speed vs {one_line(summary.baseline, 60)}", "of the same run, paired by round"),
            Heading(f"{letter}: of roof", "share of the best read-only speed over the same bytes"),
        ]
    return tuple(found)


def _rows(runs: LettersAndRuns, by_variant: dict[str, dict[str, CellSummary]]) -> list[list[str]]:
    rows = []
    for variant, cells in by_variant.items():
        exact = {cell.exact for cell in cells.values()}
        row = [one_line(variant, 120), "in some" if len(exact) > 1 else "yes" if exact == {True} else "no"]
        for letter, _ in runs:
            cell = cells.get(letter)
            row += (
                [NOTHING] * 3
                if cell is None
                else [
                    f"{milliseconds(cell.cp_ms)} × {cell.threads}",
                    times(cell.speedup_vs_baseline),
                    percent(cell.roof_fraction),
                ]
            )
        rows.append(row)
    return rows


def _machine(summary: Summary) -> str:
    return machine_name(summary.machine) or "a machine that its record does not tell"
