"""Cells on the machine's roofline: which lie above it."""

from __future__ import annotations

from bench.records import CellSummary, Roofline, Summary, point_of


def marked_above(summary: Summary, roofline: Roofline) -> Summary:
    """The summary with every cell marked that is faster than the roofline says is possible."""
    cells = [cell.model_copy(update={"above_roofline": _is_above(cell, roofline)}) for cell in summary.cells]
    return summary.model_copy(update={"cells": cells})


def _is_above(cell: CellSummary, roofline: Roofline) -> bool:
    point = point_of(cell, roofline)
    return point is not None and point.above
