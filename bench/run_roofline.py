"""A run's roofline: measured once before the rounds, kept in the folder, and held against the cells at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bench.records import ROOFLINE_FILE, CellSummary, Roofline, Summary, point_of, read_roofline
from bench.roofline import best_of, measured_roofline
from bench.run_folder import RunFolder
from cplab.cpus import allowed_cpus


class RunRoofline:
    """The roofline of a run, or none where it is not wanted.

    Args:
        wanted: measure it.
        machine: facts of the machine.
        folder: where it is kept, or None.
    """

    def __init__(self, wanted: bool, machine: Mapping[str, Any], folder: RunFolder | None) -> None:
        self._wanted, self._machine, self._folder = wanted, machine, folder
        self.found: Roofline | None = None

    def measure(self, threads: Iterable[int], say: Callable[[str], None]) -> None:
        """Measure it for team sizes that are not oversubscribed; a run that is gone on with may have it already."""
        if self._folder is not None:
            self.found = read_roofline(self._folder.path / ROOFLINE_FILE)
        if self._wanted and self.found is None:
            counts = sorted({count for count in threads if count <= allowed_cpus()})
            self._keep(measured_roofline(self._machine, counts, say))

    def measure_again(self, threads: Iterable[int], say: Callable[[str], None]) -> None:
        """Measure it once more where cells lie above it; what was reached once can be reached."""
        counts = sorted(set(threads))
        if self.found is not None and counts:
            self._keep(best_of(self.found, measured_roofline(self._machine, counts, say)))

    def marked(self, summary: Summary) -> Summary:
        """The summary with every cell marked that is faster than the roofline says is possible."""
        if self.found is None:
            return summary
        cells = [cell.model_copy(update={"above_roofline": _is_above(cell, self.found)}) for cell in summary.cells]
        return summary.model_copy(update={"cells": cells})

    def _keep(self, roofline: Roofline) -> None:
        self.found = roofline
        if self._folder is not None:
            self._folder.write_roofline(roofline)


def _is_above(cell: CellSummary, roofline: Roofline) -> bool:
    point = point_of(cell, roofline)
    return point is not None and point.above
