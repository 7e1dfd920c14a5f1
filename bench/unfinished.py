"""Runs that did not end: reading what a killed process left, and giving it a summary and its name."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.errors import UnfinishedRunError
from bench.folder_names import final_name, has_owner, is_hidden
from bench.options import BASELINE
from bench.plan import PLAN_FILE, Plan, PlannedVariant, read_plan
from bench.plan_summary import summary_of
from bench.records import (
    STREAM_RECORDS_FILE,
    CellRecord,
    UnreadableRecordError,
    read_records,
    read_stream_records,
    read_summary,
)
from bench.run_folder import RunFolder
from bench.stream_cells import streams_of
from cplab import __version__
from cplab.variant import variants


def newest_unfinished(runs: Path, machine: str) -> Path:
    """The newest run of a machine that can be gone on with: killed, or interrupted.

    Raises:
        UnfinishedRunError: there is none.
    """
    folders = [path for path in (runs / machine).glob("[!.]*") if _was_interrupted(path)]
    folders += [path for path in (runs / machine).glob(".*") if is_hidden(path) and not has_owner(path)]
    able = [path for path in folders if (path / PLAN_FILE).is_file() and _holds_records(path)]
    if not able:
        raise UnfinishedRunError(f"{runs / machine}: no run there that was killed or interrupted; nothing to resume")
    return max(able, key=lambda path: final_name(path).name)


def recover(folder: Path) -> Path:
    """Give a run folder without a summary what its records say, and a hidden one its name; others stay as they are.

    Returns:
        Where the folder is now.

    Raises:
        UnfinishedRunError: there is no record in it, or its process still writes it.
        UnreadableRecordError: its records cannot be read.
    """
    if (folder / "summary.json").is_file() and not is_hidden(folder):
        return folder
    if not _holds_records(folder):
        return folder  # whoever reads it says what is missing
    if is_hidden(folder) and has_owner(folder):
        raise UnfinishedRunError(f"{folder}: this run is still going on; wait for its end, or stop it with Ctrl-C")
    records = read_records(folder / "records.jsonl", torn=True)
    if not records:
        raise UnfinishedRunError(f"{folder}: no record in it; there is nothing to report")
    plan = read_plan(folder) or plan_of_records(folder, records)
    machine = read_machine(folder)
    streams = read_stream_records(folder / STREAM_RECORDS_FILE, torn=True)
    left = RunFolder.reopened(folder, records)
    summary = summary_of(plan, records, machine, elapsed_s=elapsed_s(records), interrupted=True)
    left.write_summary(summary)
    left.write_streams(streams_of(streams, records, summary))
    left.write_pyperf()
    return left.finish()


def read_machine(folder: Path) -> dict[str, Any]:
    """A run's machine facts; empty where the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / "machine.json").read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {name: value for name, value in found.items() if name != "schema"}
    return {}


def elapsed_s(records: Sequence[CellRecord]) -> float:
    """Seconds from the first record's start to the last one's: about what a run used of its budget."""
    times = []
    for record in records:
        if record.phase == "talker_trial":
            continue  # before the clock of the budget
        with contextlib.suppress(ValueError):
            times.append(datetime.fromisoformat(record.started_utc).replace(tzinfo=UTC))
    return (max(times) - min(times)).total_seconds() if times else 0.0


def _was_interrupted(folder: Path) -> bool:
    with contextlib.suppress(UnreadableRecordError):
        return read_summary(folder / "summary.json").run.interrupted
    return False


def _holds_records(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return (folder / "records.jsonl").stat().st_size > 0
    return False


def plan_of_records(folder: Path, records: list[CellRecord]) -> Plan:
    """What can be told of a run that an older version began: it wrote no plan."""
    known = variants()
    records = [record for record in records if record.phase not in ("talker_trial", "talker")] or records
    names = list(dict.fromkeys(record.twin_of or record.variant for record in records))
    found = [(name, known.get(name)) for name in names]
    _, _, commit = final_name(folder).name.partition("-")
    model = records[0].model
    return Plan(
        command="not recorded",
        started_utc=records[0].started_utc,
        commit=commit.removesuffix("-dirty") or "nogit",
        dirty=commit.endswith("-dirty"),
        tool_version=__version__,
        model=model,
        variants=[
            PlannedVariant(name=name, format=one.format, arithmetic=one.arithmetic, tier=one.tier, extra=one.extra)
            if one
            # Called exact by nobody: what it was is not known here.
            else PlannedVariant(name=name, format="unknown", arithmetic="unknown", tier="quality")
            for name, one in found
        ],
        baseline=BASELINE if BASELINE in names else names[0],
        threads=sorted({record.threads for record in records}),
        threads_given=False,
        threads_reason="of the records of a run that did not end",
        budget_s=0,
        prepared={
            "spec": {}, "digest": "", "synthetic": model.startswith("synthetic:"), "golden_frames": "?",
            "golden_reference": "not recorded",
        },
    )  # fmt: skip
