"""``bench compare V W``: two variants, or two revisions of one, in one interleaved run.

A revision's code runs from a temporary git worktree: its own workers, gate, timing and kernels, in the same
environment. The two take turns round by round; a third cell, A once more, tells the noise of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from bench.cells import Cell
from bench.choosing import contenders_of
from bench.cli_options import one_variant
from bench.compared import Compared, ComparedCell
from bench.cpu_topology import topology
from bench.errors import ComparisonError
from bench.options import Contender, Options, Pair
from bench.records import CellSummary
from bench.sources import OWN_TREE, source_digest
from bench.sweep import Outcome, sweep
from bench.worktree import worktree
from cplab.cpus import affinity, allowed_cpus
from cplab.sysfiles import ROOT
from reports.wording import difference, plural, times

#: With 12 rounds of 1.5 % noise a change of 5 % is found; frames are fewer where time is short, not rounds.
LEAST_ROUNDS = 12

MakeOptions = Callable[..., Options]


def compare_contenders(
    a: str,
    b: str,
    make_options: MakeOptions,
    *,
    threads: int | None,
    files: list[Path] | None,
    least_change: float,
) -> Compared:
    """Measure and compare.

    Args:
        a: what B is compared with: ``NAME`` or ``NAME@REVISION``.
        b: what is judged.
        make_options: a sweep's options from its contenders and what is asked of it here.
        threads: team size, or None for the machine's cores.
        files: Python files with variants that are not installed.
        least_change: the share that a change must exceed.

    Raises:
        ComparisonError: both are the same, or one is no variant and no revision of one.
        cplab.errors.CplabError: the model or its golden cannot be had.
    """
    if a.strip() == b.strip():
        raise ComparisonError(f"{a}: compared with itself; bench sweep --aa measures how much that differs")
    for name in (a, b):
        if Path(name).exists():
            raise ComparisonError(f"{name} is a file, and the other is none: two runs or two variants can be compared")
    count = threads or home_threads()
    with ExitStack() as trees:
        contenders = [_contender(name, files, trees) for name in (a, b)]
        pair = Pair(Cell(contenders[0].name, count), Cell(contenders[1].name, count), least_change)
        options = make_options(contenders, threads=[count], pair=pair, least_rounds=LEAST_ROUNDS)
        outcome = sweep(options)
    return _compared(outcome, pair, contenders)


def home_threads() -> int:
    """As many threads as cores that this process may use."""
    return max(1, min(len(topology(ROOT).restricted(affinity()).cores), allowed_cpus()))


def _contender(name: str, files: list[Path] | None, trees: ExitStack) -> Contender:
    of, at, revision = name.strip().partition("@")
    variant = one_variant(of, files)
    if not at:
        return contenders_of([variant])[0]
    file = Path(variant.source).resolve()
    if not file.is_relative_to(OWN_TREE):
        raise ComparisonError(f"{name}: {file} is not of the lab's own source tree, whose revisions can be measured")
    tree, commit = trees.enter_context(worktree(revision))
    there = tree / file.relative_to(OWN_TREE)
    if not there.is_file():
        raise ComparisonError(f"{name}: that revision has no {file.relative_to(OWN_TREE)}")
    return Contender(f"{of}@{revision}", variant, tree, commit, source_digest(there, tree))


def _compared(outcome: Outcome, pair: Pair, contenders: list[Contender]) -> Compared:
    summary = outcome.summary
    cells = {Cell(cell.variant, cell.threads): cell for cell in summary.cells}
    a, b = cells.get(pair.a), cells.get(pair.b)
    rows = []
    if a is not None and b is not None and a.cp_ms and b.cp_ms:
        found = summary.comparisons[0] if summary.comparisons else None
        rows.append(ComparedCell(str(pair.b), a.cp_ms, b.cp_ms, found))
    notes = [f"model: {summary.model.name}; {plural(summary.run.rounds, 'round')}; command: {summary.run.command}"]
    if summary.repeatability is not None:
        aa = summary.repeatability
        notes.append(f"A/A: {aa.variant} beside itself, {times(aa.ratio)}: up to {difference(aa.noise)} is noise here")
    if contenders[0].source_digest == contenders[1].source_digest:
        notes.append("A and B are made of the same sources")
    notes += [f"{one.name}: commit {one.revision}" for one in contenders if one.revision]
    wrong = [f"{one}: {cell.gate}: {cell.reason or cell.gate_detail}" for one, cell in cells.items() if _is_wrong(cell)]
    notes += [f"{one}: skipped: {cell.reason}" for one, cell in cells.items() if cell.gate == "skip"]
    notes += [outcome.note] if outcome.note else []
    return Compared(
        a=str(pair.a), b=str(pair.b), unit="ms a frame", cells=rows, notes=notes, wrong=wrong,
        interrupted=summary.run.interrupted, folder=outcome.folder,
    )  # fmt: skip


def _is_wrong(cell: CellSummary) -> bool:
    return cell.gate in ("fail", "crash")
