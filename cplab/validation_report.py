"""What ``cplab validate`` shows of a validated cell, on the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cplab.cachedir import replacing
from cplab.finite_json import finite_json
from cplab.gating import ValidatedCell
from cplab.golden import Golden
from cplab.golden_choosing import MARGIN_FACTOR
from cplab.validation import Comparison, Mismatch, tie_bound

SCHEMA = "cplab.validation/1"

#: Mismatches and failed frames that are shown of each way of running; JSON has all.
SHOWN = 20

_COLOURS = {"tie": "yellow", "wrong": "red", "differs": "cyan", "follows": "dim"}


def show(cell: ValidatedCell, console: Console) -> None:
    """Print both counts, the gate's verdict, a table by codebook, and what does not match."""
    runs = cell.found.runs
    _line(console, f"{cell.variant.name} x {cell.threads}")
    for name, run in runs.items():
        _line(console, f"  {name + ':':15} {run.summary()}")
    _show_gate(cell, console)
    console.print(_by_codebook(cell))
    for name, run in runs.items():
        _show_differences(name, run, console)
    if any(run.mismatches for run in runs.values()):
        _line(
            console, "margin: the golden's largest logit less its second; gap: the variant's own less the golden code's"
        )
        _line(console, told_ties(cell.golden))


def told_ties(golden: Golden) -> str:
    """What is called a tie with this golden, or why nothing is; one line."""
    bound = tie_bound(golden)
    if bound is None:
        return (
            "no mismatch is called a tie: this golden has no record of how far PyTorch's logits are from the oracle's; "
            "python -m cplab golden --reference torch makes one that has"
        )
    return (
        f"tie: both are below {bound:.3g}, which is {MARGIN_FACTOR} x the largest difference between "
        "PyTorch's and the oracle's logits that this golden has recorded"
    )


def write_json(cells: Sequence[ValidatedCell], model: str, path: Path) -> None:
    """Write every count and every mismatch of cells that were compared with one golden."""
    golden = cells[0].golden
    told = {
        "schema": SCHEMA,
        "model": model,
        "golden": {
            "model": golden.model,
            "digest": golden.digest,
            "arithmetic": golden.arithmetic,
            "reference": golden.provenance.get("reference"),
            "largest_difference_to_reference": golden.provenance.get("largest_difference_to_reference"),
        },
        "tie_below": tie_bound(golden),
        "cells": [_as_dict(cell) for cell in cells],
    }
    with replacing(path) as temporary:
        temporary.write_text(finite_json(told, indent=1) + "\n", encoding="utf-8")


def _show_gate(cell: ValidatedCell, console: Console) -> None:
    report, name = cell.report, cell.variant.format
    against = f", against the weights rounded to {name}" if cell.lossy_weights else ""
    bad = report.failed()
    told = f"failed {len(bad)} of {len(report.checks)} checks" if bad else f"passed {len(report.checks)} checks"
    _line(console, f"  {'gate:':15} {told}{against}")
    for check in report.checks:
        if not check.passed:
            _line(console, f"    {check.name}: {check.detail}")
    if cell.lossy_weights:
        law = cell.golden.arithmetic
        beside = "the original's" if law == "f32" else f"those of the rounded weights in {law}, not the original's"
        _line(console, f"  {'fidelity:':15} {cell.lossy_weights} weights changed by {name}; codes are beside {beside}")


def _by_codebook(cell: ValidatedCell) -> Table:
    frames = len(cell.found.free_running.matches)
    table = Table("codebook", box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for heading in cell.found.runs:
        table.add_column(heading, justify="right")
    rows = zip(*(run.by_codebook for run in cell.found.runs.values()), strict=True)
    for number, counts in enumerate(rows, 1):
        marked = [Text(f"{n}/{frames}", style="" if n == frames else "yellow") for n in counts]
        table.add_row(f"CB{number}", *marked)
    return table


def _show_differences(name: str, run: Comparison, console: Console) -> None:
    if run.failed:
        _line(console, f"{name}, failed frames, none of whose codes count:")
        for failed in run.failed[:SHOWN]:
            _line(console, f"  frame {failed.frame}: {failed.reason}")
        _more(console, len(run.failed))
    if run.mismatches:
        _line(console, f"{name}, other codes than the golden's:")
        console.print(_table(run.mismatches[:SHOWN]))
        _more(console, len(run.mismatches))


def _table(mismatches: Sequence[Mismatch]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    for heading in ("frame", "codebook", "golden", "variant", "margin", "gap", "label"):
        table.add_column(heading, justify="left" if heading in ("codebook", "label") else "right", no_wrap=True)
    for found in mismatches:
        table.add_row(
            str(found.frame),
            f"CB{found.codebook}",
            str(found.expected),
            str(found.got),
            f"{found.margin:.3g}",
            "-" if found.gap is None else f"{found.gap:.3g}",
            Text(found.label, style=_COLOURS[found.label]),
        )
    return table


def _more(console: Console, count: int) -> None:
    if count > SHOWN:
        _line(console, f"  and {count - SHOWN} more")


def _line(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def _as_dict(cell: ValidatedCell) -> dict[str, Any]:
    checks = [{"name": c.name, "passed": c.passed, "detail": c.detail} for c in cell.report.checks]
    return {
        "variant": cell.variant.name,
        "format": cell.variant.format,
        "tier": cell.variant.tier,
        "threads": cell.threads,
        "passed": cell.passed,
        "lossy_weights": cell.lossy_weights,
        "gate": {"passed": cell.report.passed, "checks": checks},
        "free_running": _run_as_dict(cell.found.free_running),
        "teacher_forced": _run_as_dict(cell.found.teacher_forced),
    }


def _run_as_dict(run: Comparison | None) -> dict[str, Any] | None:
    if run is None:
        return None
    return {
        "codes": run.matches.size,
        "codes_matched": int(run.matches.sum()),
        "frames": len(run.matches),
        "frames_matched": run.frames_matched,
        "by_codebook": run.by_codebook,
        "failed_frames": [asdict(failed) for failed in run.failed],
        "mismatches": [asdict(found) for found in run.mismatches],
    }
