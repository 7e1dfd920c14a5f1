"""A sweep's result on the terminal."""

from __future__ import annotations

from rich.table import Table

import reports
from bench.records import CellSummary, Summary
from cplab.commandline import console


def print_cells(summary: Summary) -> None:
    """The table of cells, what went wrong, and the verdict."""
    table = Table(box=None, pad_edge=False)
    table.add_column("variant", no_wrap=True)
    for heading in ("threads", "ms a frame", "95 %", f"x {summary.baseline}", "GB/s", "of roof"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("exact")
    table.add_column("gate")
    ordered = sorted(summary.cells, key=lambda c: (c.cp_ms is None, c.cp_ms.p50 if c.cp_ms else 0))
    for cell in ordered:
        table.add_row(*_row(cell))
    console.print(table)
    for cell in ordered:
        if cell.gate != "pass":
            told = cell.reason or cell.gate_detail
            console.print(f"{cell.variant} x {cell.threads}: {cell.gate}: {told}", highlight=False, markup=False)
    console.print()
    console.print(reports.verdict(summary), highlight=False, markup=False)


def _row(cell: CellSummary) -> list[str]:
    over = " (oversubscribed)" if cell.oversubscribed else ""
    head = [cell.variant, f"{cell.threads}{over}"]
    tail = ["yes" if cell.exact else "no", cell.gate]
    if cell.cp_ms is None:
        return [*head, "-", "-", "-", "-", "-", *tail]
    ratio = cell.speedup_vs_baseline
    roof = "-" if cell.roof_fraction is None else f"{cell.roof_fraction:.0%}{'?' if cell.roof_suspect else ''}"
    return [
        *head,
        f"{cell.cp_ms.p50:.1f}",
        f"{cell.cp_ms.lo:.1f}..{cell.cp_ms.hi:.1f}",
        "-" if ratio is None else f"{ratio.ratio:.2f}",
        "-" if cell.gbps is None else f"{cell.gbps:.1f}",
        roof,
        *tail,
    ]
