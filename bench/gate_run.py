"""``bench gate``: every cell through the gate, in a worker each, and the tables that come of it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from bench import machine
from bench.job import Job
from bench.launch import Launcher
from bench.records import CellRecord
from cplab.cachedir import replacing
from cplab.commandline import console
from cplab.errors import CplabError
from cplab.variant import Variant


def gate_cells(
    model: str,
    variants: list[Variant],
    threads: list[int],
    *,
    frames: int | None,
    golden: Path | None,
    files: list[Path] | None,
    timeout_s: float | None = None,
) -> list[CellRecord]:
    """Gate every variant at every thread count, a line each as it is known.

    Raises:
        CplabError: the model or its golden cannot be had.
    """
    launcher = Launcher(timeout_s)
    shared = {"model": model, "golden": str(golden or ""), "variant_files": [str(f) for f in files or []]}
    prepared = launcher.run(Job(phase="prepare", **shared))  # type: ignore[arg-type]
    if prepared.gate.status != "skip":
        raise CplabError(prepared.gate.detail)
    records = []
    for variant in variants:
        for count in threads:
            job = Job(
                phase="gate",
                variant=variant.name,
                threads=count,
                gate_frames=frames,
                cpus=machine.pinning(count),
                **shared,  # type: ignore[arg-type]
            )
            with Status(escape(f"{variant.name} x {count}"), console=Console(stderr=True)):
                record = launcher.run(job)
            records.append(record)
            _print(record)
    return records


def _print(record: CellRecord) -> None:
    outcome = record.gate
    colour = {"pass": "green", "fail": "red", "crash": "red", "skip": "yellow"}[outcome.status]
    console.print(
        f"[{colour}]{outcome.status:5}[/] {escape(record.variant)} x {record.threads}: ", end="", soft_wrap=True
    )
    told = outcome.detail if outcome.status == "pass" else _counts(record) or outcome.detail
    console.print(told, highlight=False, markup=False, soft_wrap=True)
    for check in outcome.checks:
        if not check.passed:
            console.print(f"      {check.name}: {check.detail}", highlight=False, markup=False, soft_wrap=True)


def _counts(record: CellRecord) -> str:
    outcome = record.gate
    if not outcome.codes_total:
        return ""
    return (
        f"{outcome.codes_matched}/{outcome.codes_total} codes match "
        f"({outcome.frames_matched}/{outcome.frames_total} frames)"
    )


def write_json(records: list[CellRecord], path: Path) -> None:
    """One record a line, as in ``records.jsonl``."""
    with replacing(path) as temporary:
        temporary.write_text("".join(f"{r.model_dump_json(by_alias=True)}\n" for r in records), encoding="utf-8")


def write_markdown(records: list[CellRecord], path: Path) -> None:
    """Append a table to a file, such as a CI system's job summary."""
    lines = ["| variant | threads | gate | codes | checks |", "|---|---|---|---|---|"]
    for record in records:
        bad = [check.name for check in record.gate.checks if not check.passed]
        checks = f"{len(record.gate.checks)} passed" if not bad else f"failed: {', '.join(bad)}"
        told = checks if record.gate.checks else record.gate.detail.replace("|", "\\|")
        counts = _counts(record)
        lines.append(f"| {record.variant} | {record.threads} | {record.gate.status} | {counts} | {told} |")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
