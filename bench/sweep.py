"""A sweep: gate the cells, measure the right ones in interleaved rounds, write everything down.

Order of things: the model, its golden and the compiled kernels are made before the clock starts; each cell is gated
in a process of its own; then rounds follow, in each of which every cell gets one fresh process, in a shuffled order,
so that what the machine does meanwhile touches all of them alike. A worker that dies costs one cell.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import reports
from bench import machine
from bench.budget import Budget
from bench.cells import LEAST_ROUNDS, Cell, Chosen, default_cells, every_cell, quick_ms
from bench.job import Job
from bench.launch import Launcher
from bench.progress import SweepProgress
from bench.records import CellRecord, Fidelity, ModelFacts, RunFacts, Summary
from bench.run_folder import RUNS, RunFolder, run_folder_path
from bench.summary import CellInfo, summarise
from cplab import __version__
from cplab.cpus import allowed_cpus
from cplab.errors import CplabError
from cplab.variant import Variant

#: Frames that a sweep's gate looks at, with every check.
GATE_FRAMES = 2
ROOF_READS = 2
#: Frames and readings when a cell is measured again because it was faster than its roof.
AGAIN_READS = 8
BASELINE = "recompute_f16"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        model: a path or a name.
        variants: implementations, in order.
        threads: thread counts, or None for the machine's own list.
        everything: all variants at all thread counts, without a budget.
        rounds: how many, or None for as many as fit (at least LEAST_ROUNDS).
        frames: timed frames a worker, or None for as many as fit.
        budget_s: seconds from the first gate to the last round.
        least_rounds: how few rounds may do where time is short.
        quick: fewer cells.
        out: folder for runs.
        golden: a golden file, or "" for the model's own.
        variant_files: Python files with variants that are not installed.
        seed: of the shuffle.
        write: write a run folder.
    """

    model: str
    variants: list[Variant]
    threads: list[int] | None = None
    everything: bool = False
    rounds: int | None = None
    frames: int | None = None
    budget_s: float = 240.0
    least_rounds: int = LEAST_ROUNDS
    quick: bool = False
    out: Path = RUNS
    golden: str = ""
    variant_files: list[str] = field(default_factory=list)
    seed: int = 0
    write: bool = True
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished sweep: its summary, its folder where one was written."""

    summary: Summary
    folder: Path | None


def sweep(options: Options) -> Outcome:
    """Run a sweep.

    Raises:
        CplabError: the model, its golden or the output folder cannot be had; nothing is measured then.
    """
    return _Sweep(options).run()


class _Sweep:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.launcher = Launcher(options.timeout_s)
        self.by_name = {variant.name: variant for variant in options.variants}
        self.started = datetime.now(UTC)
        self.facts = machine.facts(Path.cwd())
        listed, reason = machine.thread_list()
        self.threads = options.threads or listed
        self.threads_reason = "as asked" if options.threads else reason
        self.records: list[CellRecord] = []
        self.interrupted = False
        limit = None if options.everything else options.budget_s
        self.budget = Budget(limit, options.rounds, options.frames, options.least_rounds)
        self.golden = options.golden
        self.digest = ""

    def run(self) -> Outcome:
        options = self.options
        commit, dirty = machine.git_state(Path.cwd())
        folder = None
        if options.write:
            folder = RunFolder(run_folder_path(machine.machine_id(), self.started, commit, dirty, options.out))
        try:
            prepared = self._prepare()
            self.golden, self.digest = prepared.facts["golden"], prepared.facts["digest"]
            self.budget.begin()
            git = (commit, dirty)
            with SweepProgress() as progress:
                chosen = self._measure(progress, folder)
                summary = self._summary(chosen, prepared, git)
                suspects = [Cell(cell.variant, cell.threads) for cell in summary.cells if cell.roof_suspect]
                if suspects and not self.interrupted:
                    self._measure_again(suspects, chosen, progress, folder)
                    summary = self._summary(chosen, prepared, git)
        except BaseException:
            if folder is not None and not self.records:
                folder.discard()
            raise
        return Outcome(summary, self._write(folder, summary) if folder is not None else None)

    def _prepare(self) -> CellRecord:
        options = self.options
        job = Job(phase="prepare", model=options.model, golden=options.golden, variant_files=options.variant_files)
        record = self.launcher.run(job)
        if record.gate.status != "skip":
            raise CplabError(record.gate.detail)
        return record

    def _measure(self, progress: SweepProgress, folder: RunFolder | None) -> Chosen:
        options = self.options
        chosen = Chosen({}, [])

        def gate(cell: Cell) -> CellRecord:
            progress.gating(str(cell))
            record = self._keep(self.launcher.run(self._job("gate", cell)), folder)
            chosen.gated[cell] = record
            return record

        with self._interruptible():
            if options.everything or options.threads is not None:
                picked = every_cell(options.variants, self.threads, gate)
            else:
                physical = min(self.facts["cpu"].get("physical_allowed") or 1, allowed_cpus())
                picked = default_cells(
                    options.variants,
                    self.threads,
                    physical,
                    gate,
                    remaining_s=self.budget.remaining_s,
                    rounds=self.budget.wanted_rounds,
                    quick=options.quick,
                )
            chosen = picked
            self.facts["prefetch_bytes"] = {
                str(cell): record.facts["prefetch_bytes"]
                for cell, record in chosen.gated.items()
                if record.facts.get("prefetch_bytes")
            }
            self._rounds(chosen, progress, folder)
        return chosen

    def _rounds(self, chosen: Chosen, progress: SweepProgress, folder: RunFolder | None) -> None:
        shuffle = random.Random(self.options.seed)
        alive = chosen.passing()
        number = 0
        while alive and self.budget.another_round(number):
            began = time.monotonic()
            order = shuffle.sample(alive, len(alive))
            for position, cell in enumerate(order):
                what = f"round {number + 1}, {cell}"
                progress.measuring(what, position, len(order), self.budget.rounds_left(number))
                frames = self.budget.frames_of(quick_ms(chosen.gated[cell]), len(order), number)
                started = time.monotonic()
                reads = 1 if self.options.quick else ROOF_READS
                record = self._time(cell, chosen, folder, frames, reads, number, position)
                if record.gate.status == "pass":
                    self.budget.worker_took(time.monotonic() - started, record)
                else:
                    alive.remove(cell)
            self.budget.round_took(time.monotonic() - began)
            number += 1

    def _time(
        self, cell: Cell, chosen: Chosen, folder: RunFolder | None, frames: int, reads: int, number: int, order: int
    ) -> CellRecord:
        lossy = bool(chosen.gated[cell].facts.get("lossy_weights"))
        job = self._job("timed", cell, frames=frames, round_number=number, order=order)
        return self._keep(self.launcher.run(job.model_copy(update={"lossy": lossy, "roof_reads": reads})), folder)

    def _measure_again(
        self, suspects: list[Cell], chosen: Chosen, progress: SweepProgress, folder: RunFolder | None
    ) -> None:
        """One more round for cells faster than their roof, with many readings; what still is, stays marked."""
        number = 1 + max(record.round for record in self.records)
        with self._interruptible():
            for position, cell in enumerate(suspects):
                progress.measuring(f"above its roof, again: {cell}", position, len(suspects), 1)
                self._time(cell, chosen, folder, AGAIN_READS, AGAIN_READS, number, position)

    def _job(self, phase: Any, cell: Cell, *, frames: int = 0, round_number: int = 0, order: int = 0) -> Job:
        options = self.options
        return Job(
            phase=phase,
            model=options.model,
            variant=cell.variant,
            threads=cell.threads,
            variant_files=options.variant_files,
            golden=self.golden,
            digest=self.digest,
            cpus=machine.pinning(cell.threads),
            round=round_number,
            order=order,
            frames=frames,
            first_frame=round_number * max(frames, 1) + 2,
            gate_frames=GATE_FRAMES,
            quick_frames=1 if options.quick else 2,
        )

    def _keep(self, record: CellRecord, folder: RunFolder | None) -> CellRecord:
        self.records.append(record)
        if folder is not None:
            folder.append(record)
        return record

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def _summary(self, chosen: Chosen, prepared: CellRecord, git: tuple[str, bool]) -> Summary:
        options = self.options
        timed = [record for record in self.records if record.phase == "timed"]
        infos = [self._info(cell, record) for cell, record in chosen.gated.items()]
        missing = ["talker: not measured by this version of the lab; the tablet's 29.3 ms stand in"]
        return summarise(
            self.records,
            infos,
            model=ModelFacts(
                name=options.model,
                spec=prepared.facts["spec"],
                digest=prepared.facts["digest"],
                synthetic=prepared.facts["synthetic"],
            ),
            machine=self.facts,
            run=RunFacts(
                command=_command(),
                seed=options.seed,
                rounds=max((record.round + 1 for record in timed), default=0),
                frames_per_round=max((len(record.samples_ns) for record in timed), default=0),
                started_utc=f"{self.started:%Y-%m-%dT%H:%M:%SZ}",
                elapsed_s=round(self.budget.elapsed_s(), 1),
                interrupted=self.interrupted,
                commit=git[0],
                dirty=git[1],
                tool_version=__version__,
                golden=f"{prepared.facts['golden_frames']} frames, codes by {prepared.facts['golden_reference']}",
                thread_list=self.threads,
                thread_list_reason=self.threads_reason,
                not_measured=[*missing, *chosen.left_out],
            ),
            baseline=BASELINE if BASELINE in self.by_name else options.variants[0].name,
        )

    def _info(self, cell: Cell, gated: CellRecord) -> CellInfo:
        variant = self.by_name[cell.variant]
        found = gated.facts
        fidelity = Fidelity(teacher_forced=found.get("teacher_forced"), free_running=found.get("free_running"))
        lossy = int(found.get("lossy_weights") or 0)
        return CellInfo(
            variant=variant.name,
            format=variant.format,
            arithmetic=variant.arithmetic,
            tier="quality" if lossy else variant.tier,
            threads=cell.threads,
            lossy_weights=lossy,
            fidelity=fidelity,
            reason=gated.reason,
            engine_note=str(found.get("engine_note") or ""),
        )

    def _write(self, folder: RunFolder, summary: Summary) -> Path:
        folder.write_machine(self.facts)
        folder.write_summary(summary)
        folder.write_pyperf()
        reports.write_html(folder.path, folder.path / "report.html")
        reports.write_markdown(folder.path, folder.path / "report.md")
        return folder.finish()


def _command() -> str:
    return " ".join(["python -m bench", *sys.argv[1:]])
