"""The main table: one row a cell, the same strings for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.records import CellRecord, CellSummary, GateOutcome, Summary
from reports.wording import NOTHING, milliseconds, one_line, percent, plural, significant, times

GATE_ORDER = {"pass": 0, "fail": 1, "crash": 2, "skip": 3}

REASON_LIMIT = 300
"""Characters of a reason in the main table; the gate's table has more of it."""

Outcomes = dict[tuple[str, int], GateOutcome]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its header, what it means, and how a cell's entry is written.

    Attributes:
        is_time: whether it holds a time or comes from one; such entries exist only where the gate passed.
        is_text: whether entries are words, set to the left.
    """

    name: str
    meaning: str
    entry: Callable[[CellSummary, GateOutcome | None], str]
    is_time: bool = False
    is_text: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A cell's entries, one for each column, and why it has no times where it has none."""

    status: str
    entries: list[str]
    reason: str
    exact: bool


def columns(summary: Summary) -> list[Column]:
    """The columns of the main table, in order."""
    return [
        Column("variant", "the implementation", lambda cell, _: cell.variant, is_text=True),
        Column("threads", "threads of the team", lambda cell, _: str(cell.threads)),
        Column(
            "exact",
            "tier exact, f32 arithmetic and a lossless pack, gate passed",
            lambda cell, _: _exact(cell),
            is_text=True,
        ),
        Column(
            "ms a frame p50 [95 %]",
            "median over rounds and its 95 % interval",
            lambda cell, _: milliseconds(cell.cp_ms),
            is_time=True,
        ),
        Column(
            "min ms",
            "the least sample",
            lambda cell, _: significant(cell.cp_ms.min if cell.cp_ms else None),
            is_time=True,
        ),
        Column(
            f"speed vs {summary.baseline}",
            "paired by round, with its 95 % interval; above 1 is faster",
            lambda cell, _: times(cell.speedup_vs_baseline),
            is_time=True,
        ),
        Column("GB/s", "bytes a frame over the median", lambda cell, _: significant(cell.gbps), is_time=True),
        Column(
            "of roof",
            "share of the best read-only speed over the same bytes",
            lambda cell, _: percent(cell.roof_fraction),
            is_time=True,
        ),
        Column(
            "RTF, CP only",
            "time of the CP over the audio's 80 ms",
            lambda cell, _: significant(cell.rtf_cp),
            is_time=True,
        ),
        Column("gate", "the correctness gate: pass, fail, crash or skip", lambda cell, _: cell.gate, is_text=True),
        Column("GB a frame", "weights read in a frame", lambda cell, _: _gigabytes(cell.bytes_per_frame)),
        Column("tier", "what the gate asks", lambda cell, _: cell.tier, is_text=True),
        Column("arithmetic", "the rounding law", lambda cell, _: cell.arithmetic, is_text=True),
        Column("codes equal", "free-running codes equal to the golden's, in the gate", lambda _, gate: _codes(gate)),
        Column(
            "fidelity, teacher-forced",
            "codes equal to the f32 golden's, every step fed the golden's codes",
            lambda cell, _: percent(cell.fidelity.teacher_forced),
        ),
        Column(
            "fidelity, free-running",
            "codes equal to the f32 golden's, fed its own codes",
            lambda cell, _: percent(cell.fidelity.free_running),
        ),
        Column("load s", "opening and packing the model", lambda cell, _: _if_passed(cell, cell.load_s)),
        Column("compile s", "compiling or loading compiled code", lambda cell, _: _if_passed(cell, cell.compile_s)),
        Column("RSS MB", "resident memory of the worker", lambda cell, _: _if_passed(cell, cell.rss_mb)),
        Column("notes", "marks", lambda cell, _: "; ".join(marks(cell)) or NOTHING, is_text=True),
    ]


def rows(summary: Summary, outcomes: Outcomes) -> list[Row]:
    """A row for each cell: those that passed by their median, then failed, crashed and skipped ones.

    ``outcomes`` are the gate's own outcomes by (variant, threads), from `gate_outcomes`.
    """
    shown = columns(summary)
    return [
        Row(
            status=cell.gate,
            entries=[
                one_line(column.entry(cell, outcomes.get((cell.variant, cell.threads)))) or NOTHING for column in shown
            ],
            reason=why_no_times(cell),
            exact=cell.exact and cell.gate == "pass",
        )
        for cell in in_order(summary.cells)
    ]


def in_order(cells: list[CellSummary]) -> list[CellSummary]:
    """Passing cells by median time, then the others by what became of them and by name."""
    return sorted(
        cells,
        key=lambda cell: (
            GATE_ORDER[cell.gate],
            cell.cp_ms.p50 if cell.cp_ms else float("inf"),
            cell.variant,
            cell.threads,
        ),
    )


def gate_outcomes(records: list[CellRecord]) -> Outcomes:
    """The last outcome of the gate's own phase for each (variant, threads)."""
    return {(record.variant, record.threads): record.gate for record in records if record.phase == "gate"}


def why_no_times(cell: CellSummary) -> str:
    """One line on a cell without times; empty for a timed one."""
    if cell.cp_ms is not None:
        return ""
    found = one_line(cell.reason, REASON_LIMIT) or one_line(cell.gate_detail, REASON_LIMIT)
    return found or "not timed; no reason was recorded"


def marks(cell: CellSummary) -> list[str]:
    """What qualifies a cell's figures."""
    found = []
    if cell.oversubscribed:
        found.append("oversubscribed: more threads than CPUs")
    if cell.roof_suspect:
        found.append("roof suspect: came out above its roof")
    if cell.lossy_weights:
        found.append(f"lossy: {plural(cell.lossy_weights, 'weight')} changed by packing")
    if cell.outliers:
        found.append(plural(cell.outliers, "outlier"))
    if cell.passes_per_frame not in (None, 15):
        found.append(f"{cell.passes_per_frame} passes a frame")
    return found


def _exact(cell: CellSummary) -> str:
    if cell.gate != "pass":
        return NOTHING
    return "yes" if cell.exact else "no"


def _if_passed(cell: CellSummary, figure: float | None) -> str:
    return significant(figure) if cell.gate == "pass" else NOTHING


def _codes(gate: GateOutcome | None) -> str:
    if gate is None or not gate.codes_total:
        return NOTHING
    return f"{gate.codes_matched}/{gate.codes_total}"


def _gigabytes(count_bytes: int | None) -> str:
    return NOTHING if count_bytes is None else significant(count_bytes / 1e9)
