"""A sweep's result on the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

import reports
from bench.records import CellSummary, Summary
from cplab.commandline import console
from reports.talker_and_cp import talker_lines
from reports.wording import difference, milliseconds, plural, significant, times


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
    for line in talker_lines(summary):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    print_doubts(summary)
    print_noise(summary)
    console.print()
    console.print(reports.verdict(summary), highlight=False, markup=False)


def print_figures(summary: Summary) -> None:
    """A line of figures for each timed cell: rounds first, then frames."""
    for cell in summary.cells:
        if cell.cp_ms is None:
            continue
        parts = [
            f"median {milliseconds(cell.cp_ms)} ms over {plural(cell.rounds, 'round')}",
            f"MAD {significant(cell.mad_ms)} ms",
            f"least {significant(cell.cp_ms.min)} ms",
            f"p99 {significant(cell.p99_ms)} ms over {plural(cell.frames, 'frame')}",
            f"first call {significant(cell.first_call_ms)} ms",
            plural(cell.outliers, "outlier"),
        ]
        line = f"{cell.variant} x {cell.threads}: {', '.join(parts)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_doubts(summary: Summary) -> None:
    """A line for each cell that is faster than the machine, or was measured while the machine was disturbed."""
    for cell in summary.cells:
        name = f"{cell.variant} x {cell.threads}"
        if cell.above_roofline or cell.roof_suspect:
            line = f"{name}: above its roof after a second measurement; its time or the roof is wrong"
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        if cell.disturbed:
            more = f" (and {len(cell.disturbed) - 1} more)" if len(cell.disturbed) > 1 else ""
            console.print(
                f"{name}: disturbed: {cell.disturbed[0]}{more}", highlight=False, markup=False, soft_wrap=True
            )


def print_noise(summary: Summary) -> None:
    """What the run says of itself: A/A noise and the time course of a soak, where it has them."""
    aa, soak = summary.repeatability, summary.soak
    if aa is not None:
        line = f"A/A: {aa.variant} x {aa.threads} beside itself, {times(aa.ratio)} over {plural(aa.rounds, 'round')}"
        console.print(
            f"{line}; a change below {difference(aa.noise)} is noise in this run", highlight=False, markup=False
        )
    if soak is not None:
        change = soak.end_ms / soak.start_ms - 1
        line = (
            f"soak: {soak.variant} x {soak.threads}, {soak.frames} frames in {soak.seconds:.0f} s, "
            f"{significant(soak.start_ms)} ms at first, {significant(soak.end_ms)} ms at last ({change:+.1%})"
        )
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def _row(cell: CellSummary) -> list[str]:
    head = [escape(cell.variant), f"{cell.threads}{'*' if cell.oversubscribed else ''}"]
    exact = "yes" if cell.exact else "no"
    if cell.cp_ms is None:
        return [*head, cell.gate, "-", "-", "-", exact]
    ratio = cell.speedup_vs_baseline
    roof = (
        "-"
        if cell.roof_fraction is None
        else f"{cell.roof_fraction:.0%}{'?' if cell.roof_suspect or cell.above_roofline else ''}"
    )
    return [
        *head,
        milliseconds(cell.cp_ms),
        "-" if ratio is None else f"{ratio.ratio:.2f}",
        "-" if cell.gbps is None else f"{cell.gbps:.1f}",
        roof,
        exact,
    ]
