"""The workers of a sweep: which process is started for which cell, from which source tree, under which name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bench import machine
from bench.cells import Cell
from bench.job import Job
from bench.launch import Launcher
from bench.options import Options
from bench.records import CellRecord
from cplab.errors import CplabError

#: Frames that a sweep's gate looks at, with every check.
GATE_FRAMES = 2

Prepared = Mapping[Path | None, dict[str, Any]]
"""What the prepare worker of each source tree found; the tree that we run from is None."""


def prepare(options: Options) -> Prepared:
    """Make the model, its golden and the compiled kernels, of every source tree that takes part.

    Raises:
        CplabError: one cannot be had.
    """
    found: dict[Path | None, dict[str, Any]] = {}
    for tree in dict.fromkeys([None, *(contender.tree for contender in options.contenders)]):
        job = Job(phase="prepare", model=options.model, golden=options.golden, variant_files=options.variant_files)
        record = Launcher(options.timeout_s, tree).run(job)
        if record.gate.status != "skip":
            whose = next((f"{c.name}: " for c in options.contenders if tree and c.tree == tree), "")
            raise CplabError(f"{whose}{record.gate.detail}")
        found[tree] = record.facts
    return found


class Workers:
    """Starts a worker for a cell and gives back its record, under the cell's own name.

    Args:
        options: of the sweep.
        prepared: from `prepare`.
    """

    def __init__(self, options: Options, prepared: Prepared) -> None:
        self._options, self._prepared = options, prepared
        self._contenders = {contender.name: contender for contender in options.contenders}
        self._launchers = {tree: Launcher(options.timeout_s, tree) for tree in prepared}

    def gate(self, cell: Cell) -> CellRecord:
        """Judge a cell, and time a few calls to choose by."""
        return self._run(
            "gate", cell, cell, gate_frames=GATE_FRAMES, quick_frames=1 if self._options.quick else 2,
            batches=self._options.batches,
        )  # fmt: skip

    def timed(
        self, cell: Cell, original: Cell, *, frames: int, reads: int, number: int, order: int, lossy: bool
    ) -> CellRecord:
        """Time a cell.

        Args:
            cell: under which name the record stands.
            original: what is measured; another cell where ``cell`` is that one's second name.
            frames: timed calls.
            reads: readings for the roof.
            number: of the round, from 0.
            order: position within the round.
            lossy: packing changes weights of this model.
        """
        return self._run(
            "timed", cell, original, frames=frames, roof_reads=reads, round=number, order=order, lossy=lossy,
            first_frame=number * max(frames, 1) + 2,
        )  # fmt: skip

    def soak(self, cell: Cell, *, seconds: float, lossy: bool) -> CellRecord:
        """Run a cell frame after frame for so many seconds."""
        return self._run("soak", cell, cell, seconds=seconds, lossy=lossy)

    def profile(self, cell: Cell, *, frames: int) -> CellRecord:
        """Tell where a cell's time goes, over so many pairs of frames."""
        return self._run("profile", cell, cell, frames=frames, gate_frames=GATE_FRAMES)

    def _run(
        self, phase: Literal["gate", "timed", "soak", "profile"], cell: Cell, original: Cell, **fields: Any
    ) -> CellRecord:
        contender = self._contenders[original.variant]
        prepared = self._prepared[contender.tree]
        job = Job(
            phase=phase,
            model=self._options.model,
            variant=contender.variant.name,
            threads=cell.threads,
            batch=cell.batch,
            variant_files=self._options.variant_files,
            golden=self._options.golden or prepared["golden"],
            digest=prepared["digest"],
            cpus=machine.pinning(cell.threads),
            **fields,
        )
        record = self._launchers[contender.tree].run(job)
        return record.model_copy(
            update={
                "variant": cell.variant,
                "twin_of": original.variant if cell != original else "",
                "revision": contender.revision,
            }
        )
