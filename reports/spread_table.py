"""What stands behind each cell's median: rounds, frames, scatter, first call, energy, disturbances."""

from __future__ import annotations

from bench.records import CellSummary, Summary
from reports.figure_table import FigureTable, Heading
from reports.tables import in_order
from reports.wording import NOTHING, one_line, significant

HEADINGS = (
    Heading("cell", "variant and threads", True, True),
    Heading("rounds", "processes that measured it"),
    Heading("frames", "timed frames of all rounds"),
    Heading("MAD ms", "median over rounds of how far a round's median is from the median"),
    Heading("p99 ms", "99th percentile over all frames"),
    Heading("outliers", "frames outside Tukey's fences of their round; none is dropped"),
    Heading("first call ms", "the first frame of a process"),
    Heading("J a frame", "of all CPU packages, by RAPL"),
    Heading("disturbed", "measurements under heavy steal, throttling or crowding"),
)


def spread_table(summary: Summary) -> FigureTable:
    """A row for each timed cell, fastest first."""
    return FigureTable(HEADINGS, [_row(cell) for cell in in_order(summary.cells) if cell.cp_ms is not None])


def disturbances(summary: Summary) -> list[str]:
    """A line for each disturbed measurement."""
    return [
        f"{one_line(cell.variant, 80)} × {cell.threads}, {one_line(line, 300)}"
        for cell in in_order(summary.cells)
        for line in cell.disturbed
    ]


def energy_sentence(summary: Summary) -> str:
    """Why no cell has joules; empty where one has, or no reason is known."""
    timed = [cell for cell in summary.cells if cell.cp_ms is not None]
    if any(cell.joules_per_frame is not None for cell in timed):
        return ""
    reasons = dict.fromkeys(one_line(cell.energy_reason, 300) for cell in timed if cell.energy_reason)
    return f"No energy was measured: {'; '.join(reasons)}." if reasons else ""


def _row(cell: CellSummary) -> list[str]:
    return [
        f"{one_line(cell.variant, 80)} × {cell.threads}",
        str(cell.rounds),
        str(cell.frames),
        significant(cell.mad_ms),
        significant(cell.p99_ms),
        str(cell.outliers),
        significant(cell.first_call_ms),
        significant(cell.joules_per_frame),
        str(len(cell.disturbed)) if cell.disturbed else NOTHING,
    ]
