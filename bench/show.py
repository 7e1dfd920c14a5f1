"""A sweep's result on the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

import reports
from bench.records import CellSummary, Summary
from cplab.commandline import console
from reports.wording import milliseconds


def print_cells(summary: Summary) -> None:
    """The table of cells, what went wrong, and the verdict."""
    table = Table(box=None, pad_edge=False)
    table.add_column("variant", overflow="fold")  # an engine's path may be long
    for heading in ("threads", "ms a frame", "speedup", "GB/s", "roof", "exact"):
        table.add_column(heading, justify="right", no_wrap=True)
    ordered = sorted(summary.cells, key=lambda c: (c.cp_ms is None, c.cp_ms.p50 if c.cp_ms else 0))
    for cell in ordered:
        table.add_row(*_row(cell))
    console.print(table)
    notes = [f"speedup: against {summary.baseline}", "roof: share of the read bandwidth of the same bytes"]
    notes += ["*: more threads than CPUs"] if any(cell.oversubscribed for cell in ordered) else []
    console.print("; ".join(notes), style="dim", highlight=False, markup=False)
    for cell in ordered:
        if cell.engine_note:
            note = f"{cell.variant} x {cell.threads}: {cell.engine_note}"
            console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)
        if cell.gate != "pass":
            told = cell.reason or cell.gate_detail
            console.print(
                f"{cell.variant} x {cell.threads}: {cell.gate}: {told}", highlight=False, markup=False, soft_wrap=True
            )
    console.print()
    console.print(reports.verdict(summary), highlight=False, markup=False)


def _row(cell: CellSummary) -> list[str]:
    head = [escape(cell.variant), f"{cell.threads}{'*' if cell.oversubscribed else ''}"]
    exact = "yes" if cell.exact else "no"
    if cell.cp_ms is None:
        return [*head, cell.gate, "-", "-", "-", exact]
    ratio = cell.speedup_vs_baseline
    roof = "-" if cell.roof_fraction is None else f"{cell.roof_fraction:.0%}{'?' if cell.roof_suspect else ''}"
    return [
        *head,
        milliseconds(cell.cp_ms),
        "-" if ratio is None else f"{ratio.ratio:.2f}",
        "-" if cell.gbps is None else f"{cell.gbps:.1f}",
        roof,
        exact,
    ]
