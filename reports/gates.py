"""What the gate said of each cell, as rows: status, checks, and the first difference."""

from __future__ import annotations

from dataclasses import dataclass

from bench.records import CheckResult, Summary
from reports.tables import Outcomes, in_order
from reports.wording import NOTHING, one_line


@dataclass(frozen=True, slots=True)
class GateRow:
    """One cell before the gate. ``failed`` and ``passed`` hold (check, detail)."""

    cell: str
    status: str
    checks: str
    detail: str
    failed: list[tuple[str, str]]
    passed: list[tuple[str, str]]


def gate_rows(summary: Summary, outcomes: Outcomes) -> list[GateRow]:
    """A row for each cell, in the order of the main table."""
    found = []
    for cell in in_order(summary.cells):
        outcome = outcomes.get((cell.variant, cell.threads))
        checks = cell.checks or (outcome.checks if outcome else [])
        held = [check for check in checks if check.passed]
        detail = one_line(cell.gate_detail) or (one_line(outcome.detail) if outcome else "") or NOTHING
        reason = one_line(cell.reason)
        if reason and reason not in detail:
            detail = reason if detail == NOTHING else f"{detail} — {reason}"
        if cell.engine_note:
            detail = f"{detail} — {one_line(cell.engine_note)}"
        found.append(
            GateRow(
                cell=f"{one_line(cell.variant)} × {cell.threads}",
                status=cell.gate,
                checks=f"{len(held)} of {len(checks)}" if checks else NOTHING,
                detail=detail,
                failed=[_pair(check) for check in checks if not check.passed],
                passed=[_pair(check) for check in held],
            )
        )
    return found


def _pair(check: CheckResult) -> tuple[str, str]:
    return one_line(check.name, 200), one_line(check.detail)
