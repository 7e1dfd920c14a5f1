"""``bench history``: what each variant took in the runs of one machine, oldest first, and where it changed.

Two runs are not interleaved, so that one alone says little: a cell is held against an earlier run by the rules of
``bench compare RUN RUN`` (`bench.compare_files`), and a change is flagged only where the run after it says the same.
From then on the changed run is what later ones are held against; until then it is the oldest, so that a creep of many
small steps is found too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from bench.compare_files import compare_files
from bench.errors import ComparisonError, HistoryError
from bench.records import CellSummary, Summary, UnreadableRecordError, Verdict, read_summary
from bench.timed_rounds import Key

Flag = Literal["", "faster", "slower"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run's folder and what it came to."""

    folder: Path
    summary: Summary


@dataclass(frozen=True, slots=True)
class Moment:
    """A cell in one run: its figures, what the run alone says beside the reference, and what two in a row agree on."""

    run: Run
    cell: CellSummary
    verdict: Verdict | None = None
    flag: Flag = ""


@dataclass(frozen=True, slots=True)
class Course:
    """One variant at one thread count over the runs that measured it, oldest first."""

    variant: str
    threads: int
    moments: list[Moment]


@dataclass(frozen=True, slots=True)
class History:
    """All courses of one model on one machine; ``passed_over`` says of each folder left out why."""

    model: str
    runs: list[Run]
    courses: list[Course]
    passed_over: list[str] = field(default_factory=list)


def history_of(machine: Path, *, model: str = "", variants: Sequence[str] = (), least_change: float = 0.02) -> History:
    """Read the runs below one machine's folder.

    Args:
        machine: ``reports/runs/<machine>``.
        model: whose runs; the newest run's where it is empty.
        variants: only these; all where it is empty.
        least_change: the share that a change must exceed.

    Raises:
        HistoryError: there is no run to tell of.
    """
    runs, passed_over = _runs(machine)
    if not runs:
        raise HistoryError(f"{machine}: no run there that can be read; bench sweep makes one, --machine names another")
    model = model or runs[-1].summary.model.name
    digest = next((run.summary.model.digest for run in reversed(runs) if run.summary.model.name == model), None)
    kept = [run for run in runs if run.summary.model.name == model and run.summary.model.digest == digest]
    if not kept:
        known = ", ".join(dict.fromkeys(run.summary.model.name for run in runs))
        raise HistoryError(f"{machine}: no run of {model}; there are runs of {known}")
    others = [run for run in runs if run not in kept]
    passed_over += [f"{run.folder.name}: another model or other weights, {run.summary.model.name}" for run in others]
    judge = _judge(least_change)
    courses = [
        Course(*key, moments=flagged([Moment(run, cell) for run, cell in found], judge))
        for key, found in _cells(kept).items()
        if not variants or key[0] in variants
    ]
    if not courses:
        raise HistoryError(f"{machine}: none of its runs has a time of {', '.join(variants) or 'any variant'}")
    return History(model, kept, courses, passed_over)


def flagged(moments: Sequence[Moment], judge: Callable[[Moment, Moment], Verdict | None]) -> list[Moment]:
    """The moments with verdicts and flags.

    Args:
        moments: of one cell, oldest first.
        judge: what the second is beside the first, or None where that cannot be said.
    """
    found: list[Moment] = []
    reference = 0
    for index, moment in enumerate(moments):
        verdict = judge(moments[reference], moment) if index else None
        found.append(Moment(moment.run, moment.cell, verdict))
        before = found[index - 1] if index - 1 > reference else None
        if before is None or before.verdict != verdict or (verdict != "faster" and verdict != "slower"):
            continue
        found[index - 1] = replace(before, flag=verdict)
        reference = index - 1
    return found


def _runs(machine: Path) -> tuple[list[Run], list[str]]:
    """Finished runs by their start; hidden folders are runs that go on, or that were killed."""
    runs, passed_over = [], []
    for folder in sorted(path for path in machine.glob("[!.]*") if path.is_dir()):
        try:
            runs.append(Run(folder, read_summary(folder / "summary.json")))
        except UnreadableRecordError as error:
            passed_over.append(str(error))
    return sorted(runs, key=lambda run: (run.summary.run.started_utc, run.folder.name)), passed_over


def _cells(runs: Sequence[Run]) -> dict[Key, list[tuple[Run, CellSummary]]]:
    """For each variant the thread count that most runs measured, of several the newest run's fastest."""
    by_key: dict[Key, list[tuple[Run, CellSummary]]] = {}
    for run in runs:
        for cell in run.summary.cells:
            if cell.gate == "pass" and cell.cp_ms is not None and not cell.revision:
                by_key.setdefault((cell.variant, cell.threads), []).append((run, cell))
    counts = Counter({key: len(found) for key, found in by_key.items()})
    chosen: dict[str, Key] = {}
    for key in sorted(by_key, key=lambda key: (-counts[key], _newest_ms(by_key[key]), key)):
        chosen.setdefault(key[0], key)
    return {key: by_key[key] for key in sorted(chosen.values(), key=lambda key: _newest_ms(by_key[key]))}


def _newest_ms(found: Sequence[tuple[Run, CellSummary]]) -> float:
    cp_ms = found[-1][1].cp_ms
    return cp_ms.p50 if cp_ms else float("inf")


def _judge(least_change: float) -> Callable[[Moment, Moment], Verdict | None]:
    """Comparisons by run folder, each pair of which is made once for all its cells."""
    made: dict[tuple[Path, Path], dict[str, Verdict]] = {}

    def judge(reference: Moment, moment: Moment) -> Verdict | None:
        pair = (reference.run.folder, moment.run.folder)
        if pair not in made:
            try:
                compared = compare_files(*pair, least_change)
            except ComparisonError:
                made[pair] = {}
            else:
                made[pair] = {cell.name: cell.found.verdict for cell in compared.cells if cell.found}
        return made[pair].get(f"{moment.cell.variant} x {moment.cell.threads}")

    return judge
