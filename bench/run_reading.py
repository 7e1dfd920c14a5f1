"""Reading what there is of a run: its folder, its summary alone, or its records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.plan import read_plan
from bench.plan_summary import summary_of
from bench.records import Summary, UnreadableRecordError, read_records, read_summary
from bench.timed_rounds import Key, rounds_of, timed_records
from bench.unfinished import elapsed_s, plan_of_records, read_machine

RoundsOfCells = Mapping[Key, Mapping[int, Sequence[float]]]


def read_run(path: Path) -> tuple[Summary, RoundsOfCells]:
    """A run's summary, and its samples by cell and round.

    Args:
        path: a run's folder, its ``summary.json`` (then a round has its median only), or its ``records.jsonl`` (then
            the summary is made of them, and of the plan and the machine's facts where these lie beside it).

    Raises:
        UnreadableRecordError: it is none of these, or cannot be read.
        UnfinishedRunError: the plan beside it cannot be read.
    """
    if path.is_dir():
        records = path / "records.jsonl"
        if (path / "summary.json").is_file():
            summary = read_summary(path / "summary.json")
            return summary, _of_records(records) if records.is_file() else _of_summary(summary)
        return _made_again(records)
    if path.suffix == ".jsonl":
        return _made_again(path)
    summary = read_summary(path)
    return summary, _of_summary(summary)


def _of_records(path: Path) -> RoundsOfCells:
    return {key: rounds_of(found) for key, found in timed_records(read_records(path, torn=True)).items()}


def _of_summary(summary: Summary) -> RoundsOfCells:
    """Rounds are numbered as they stand, which is as they were: a cell that missed one has no times."""
    return {
        (cell.variant, cell.threads): {number: [ms] for number, ms in enumerate(cell.round_medians_ms)}
        for cell in summary.cells
        if cell.round_medians_ms
    }


def _made_again(path: Path) -> tuple[Summary, RoundsOfCells]:
    records = read_records(path, torn=True)
    if not records:
        raise UnreadableRecordError(f"{path}: no record in it")
    plan = read_plan(path.parent) or plan_of_records(path.parent, records)
    summary = summary_of(plan, records, read_machine(path.parent), elapsed_s=elapsed_s(records), interrupted=True)
    return summary, _of_records(path)
