"""A sweep: gate the cells, measure the right ones in interleaved rounds, write everything down.

Order of things: the model, its golden and the compiled kernels are made before the clock starts; each cell is gated
in a process of its own; then rounds follow, in each of which every cell gets one fresh process, in a shuffled order or
one that turns round every time, so that what the machine does meanwhile touches all of them alike. A worker that dies
costs one cell. What is to be done stands in the run's folder before it is done (`bench.plan`), and so does every
record: a run that was killed can be gone on with (`bench.resuming`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import reports
from bench.budget import Budget
from bench.budget_note import AGAIN, BEFORE, GATES, PROFILE, ROOFLINE, ROUNDS, SETUP, SOAK, TALKER, Spent, forecast
from bench.cells import LEAST_FRAMES, Cell, Chosen, leading_cell, quick_ms, worker_seconds
from bench.options import Options
from bench.plan_summary import summary_of
from bench.profile_record import digest
from bench.progress import SweepProgress
from bench.records import CellRecord, Streams, Summary
from bench.repeatability import twin_name
from bench.repeating import Repeats
from bench.rounds import order_of_round, worth_more
from bench.run_folder import RunFolder
from bench.run_roofline import RunRoofline
from bench.stream_cells import StreamCells, streams_of
from bench.sweep_cells import cells_of
from bench.sweep_start import Start, begin
from bench.sweep_workers import Workers
from bench.talker_cell import TalkerCell
from cplab.cpus import allowed_cpus

ROOF_READS = 2
#: Frames and readings when a cell is measured again because it was faster than its roof.
AGAIN_READS = 8
#: Pairs of frames, with and without the lap timer, of the profile.
PROFILE_FRAMES = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished sweep: its summary, its folder where one was written, and its streams where it measured any.

    ``note`` says by how much its time budget was exceeded, and what by; "" where it was not.
    """

    summary: Summary
    folder: Path | None
    streams: Streams | None = None
    note: str = ""


def sweep(options: Options) -> Outcome:
    """Run a sweep.

    Raises:
        cplab.errors.CplabError: the model, its golden or the output folder cannot be had; nothing is measured then.
    """
    return go_on(begin(options))


def go_on(start: Start) -> Outcome:
    """Measure what a start has not measured yet, and write everything that comes of it."""
    return _Sweep(start).run()


class _Sweep:
    def __init__(self, start: Start) -> None:
        self.start, self.options, self.folder = start, start.options, start.folder
        self.plan, self.facts = start.plan, start.facts
        self.records: list[CellRecord] = list(start.records)
        self.interrupted = False
        options = start.options
        limit = None if options.everything else options.budget_s
        self.budget = Budget(limit, options.rounds, options.frames, options.least_rounds)
        self.spent = Spent({SETUP: start.setup_s, BEFORE: start.spent_s})
        self.adaptive = options.rounds is None and limit is not None
        self.workers = Workers(options, start.prepared)
        self.twins: dict[Cell, Cell] = {}
        self.repeats = Repeats()
        self.physical = min(self.facts["cpu"].get("physical_allowed") or 1, allowed_cpus())
        self.talker = TalkerCell(options, self.plan.prepared["spec"], self.plan.threads, self.physical)
        self.streams = StreamCells(options.batches, start.streams, start.folder)
        self.roofline = RunRoofline(options.roofline, self.facts, self.folder)

    def run(self) -> Outcome:
        try:
            with self.spent.on(TALKER):
                self.talker.choose(self.start.records, self._keep)
            self.budget.begin(self.start.spent_s)
            with SweepProgress() as progress, self._interruptible():
                with self.spent.on(GATES):
                    chosen = self._choose(progress)
                self._forecast(chosen, progress)
                with self.spent.on(ROOFLINE):
                    self.roofline.measure((cell.threads for cell in chosen.passing()), progress.roofline)
                with self.spent.on(ROUNDS):
                    self._rounds(chosen, progress)
                with self.spent.on(AGAIN):
                    self._again_where_above_the_roof(chosen, progress)
                if self.options.profile:
                    with self.spent.on(PROFILE):
                        self._profile(progress)
                if self.options.soak_s:
                    with self.spent.on(SOAK):
                        self._soak(chosen, progress)
        except BaseException:
            if self.folder is not None and all(record.phase == "talker_trial" for record in self.records):
                self.folder.discard()
            raise
        summary = self._summary()
        streams = streams_of(self.streams.records, self.records, summary)
        folder = self._write(self.folder, summary, streams) if self.folder is not None else None
        note = "" if self.interrupted else self.spent.note(self.budget.seconds, self.budget.wanted_rounds)
        return Outcome(summary, folder, streams, note)

    def _choose(self, progress: SweepProgress) -> Chosen:
        """Gate the cells; those that a killed run had gated already are taken as they are."""
        options = self.options
        known = {Cell(r.variant, r.threads): r for r in self.records if r.phase == "gate"}

        def gate(cell: Cell) -> CellRecord:
            if cell in known:
                return known[cell]
            progress.gating(str(cell))
            return self._keep(self.workers.gate(cell))

        rounds = self.budget.wanted_rounds
        chosen = cells_of(
            options, self.plan, gate, physical=self.physical, remaining_s=self._remaining_s, rounds=rounds
        )
        self.facts["prefetch_bytes"] = chosen.prefetch_bytes()
        if self.plan.cells is None:
            found = {
                "cells": [(c.variant, c.threads) for c in chosen.gated],
                "left_out": [*options.left_out, *chosen.left_out],
            }
            self.plan = self.plan.model_copy(update=found)
            if self.folder is not None:
                self.folder.write_plan(self.plan)
        leading = leading_cell(chosen, [contender.variant for contender in options.contenders])
        each = options.everything or options.threads is not None
        self.streams.choose(chosen.passing() if each else [leading] if leading else [])
        if options.aa:
            original = options.pair.a if options.pair else leading
            if original is not None and original in chosen.passing():
                self.twins = {Cell(twin_name(original.variant), original.threads): original}
        return chosen

    def _remaining_s(self) -> float:
        """Seconds for gates and rounds of single frames."""
        rounds = self.budget.wanted_rounds
        return self.budget.remaining_s() - self.talker.need_s(rounds) - self.streams.need_s(self.records, rounds)

    def _forecast(self, chosen: Chosen, progress: SweepProgress) -> None:
        """Say so where the least rounds alone are more than the time allows."""
        rounds, cells = self.budget.wanted_rounds, [*chosen.passing(), *self.twins]
        frames = self.options.frames or LEAST_FRAMES
        each_s = sum(worker_seconds(self._quick_ms(cell, chosen), frames) for cell in cells)
        others_s = self.talker.need_s(rounds) + self.streams.need_s(self.records, rounds)
        needed_s, count = rounds * each_s + others_s, len(cells) + len(self.talker.cells) + len(self.streams.cells)
        told = forecast(self.budget.seconds, self.budget.elapsed_s(), needed_s, count, rounds)
        if told:
            progress.say(told)

    def _rounds(self, chosen: Chosen, progress: SweepProgress) -> None:
        measured = {(Cell(r.variant, r.threads), r.round) for r in self.records if r.phase in ("timed", "talker")}
        measured |= self.streams.measured()
        wrong = {Cell(r.twin_of or r.variant, r.threads) for r in self.records if r.gate.status in ("fail", "crash")}
        alive = [*chosen.passing(), *self.twins, *self.talker.cells, *self.streams.cells]
        alive = self._without(alive, wrong | self.streams.wrong())
        number = 0
        while set(alive) - set(self.talker.cells) and self.budget.another_round(number):
            due = alive
            if self.adaptive and number >= self.budget.least_rounds:
                due = worth_more(
                    alive,
                    self.records,
                    baseline=self.plan.baseline,
                    together=[*self.twins, *self.twins.values()],
                    pair=self.options.pair,
                    streams=self.streams.records,
                )
            due = [cell for cell in due if cell in alive]
            if not due:
                break
            began = time.monotonic()
            order = order_of_round(due, number, self.options.order, self.options.seed)
            for position, cell in enumerate(order):
                if cell not in alive or (cell, number) in measured:
                    continue
                what = f"round {number + 1}, {cell}"
                progress.measuring(what, position, len(order), self.budget.rounds_left(number))
                frames = self.budget.frames_of(self._quick_ms(cell, chosen), len(order), number)
                started = time.monotonic()
                reads = 1 if self.options.quick else ROOF_READS
                record = self._time(cell, chosen, frames, reads, number, position)
                if record.gate.status == "pass":
                    self.budget.worker_took(time.monotonic() - started, record)
                if self.repeats.wanted(record):
                    progress.measuring(f"disturbed, again: {cell}", position, len(order), 1)
                    record = self._time(cell, chosen, frames, reads, number, position, disturbed=record)
                if record.gate.status != "pass":
                    alive = self._without(alive, {self.twins.get(cell, cell)})
            self.budget.round_took(time.monotonic() - began)
            number += 1

    def _without(self, cells: list[Cell], wrong: set[Cell]) -> list[Cell]:
        """Without what went wrong, its second name, and the calls with several frames of what is wrong with one."""
        return [cell for cell in cells if not {self.twins.get(cell, cell), cell.single} & wrong]

    def _quick_ms(self, cell: Cell, chosen: Chosen) -> float:
        record = self.talker.trial if cell in self.talker.cells else chosen.gated[self.twins.get(cell, cell).single]
        return cell.batch * quick_ms(record) if record else 0.0

    def _time(
        self, cell: Cell, chosen: Chosen, frames: int, reads: int, number: int, order: int,
        disturbed: CellRecord | None = None,
    ) -> CellRecord:  # fmt: skip
        if cell in self.talker.cells:
            record = self.talker.timed(frames, number, order)
        else:
            original = self.twins.get(cell, cell)
            lossy = bool(chosen.gated[original.single].facts.get("lossy_weights"))
            reads = reads if cell.batch == 1 else 0
            record = self.workers.timed(
                cell, original, frames=frames, reads=reads, number=number, order=order, lossy=lossy
            )
        record = record if disturbed is None else self.repeats.made(disturbed, record)
        return self.streams.keep(cell, record) if cell in self.streams.cells else self._keep(record)

    def _again_where_above_the_roof(self, chosen: Chosen, progress: SweepProgress) -> None:
        """One more round for cells faster than their roof, with many readings; what still is, stays marked."""
        cells = self._summary().cells
        suspects = [Cell(cell.variant, cell.threads) for cell in cells if cell.roof_suspect or cell.above_roofline]
        self.roofline.measure_again((cell.threads for cell in cells if cell.above_roofline), progress.roofline)
        number = 1 + max((record.round for record in self.records), default=0)
        for position, cell in enumerate(suspects):
            progress.measuring(f"above its roof, again: {cell}", position, len(suspects), 1)
            self._time(cell, chosen, AGAIN_READS, AGAIN_READS, number, position)

    def _profile(self, progress: SweepProgress) -> None:
        """Where the time of the fastest cell goes; a run that is gone on with may know already."""
        cell = self._fastest()
        if cell is None or self.folder is None or any(record.phase == "profile" for record in self.records):
            return
        progress.profiling(str(cell))
        record = self._keep(self.workers.profile(cell, frames=PROFILE_FRAMES))
        if record.profile is not None:
            formats = {contender.name: contender.variant.format for contender in self.options.contenders}
            self.folder.write_profile(digest(record, formats[cell.variant]))

    def _soak(self, chosen: Chosen, progress: SweepProgress) -> None:
        """Frame after frame of the fastest cell."""
        cell = self._fastest()
        if cell is None or any(record.phase == "soak" for record in self.records):
            return
        progress.soaking(str(cell), self.options.soak_s or 0.0)
        lossy = bool(chosen.gated[cell].facts.get("lossy_weights"))
        self._keep(self.workers.soak(cell, seconds=self.options.soak_s or 0.0, lossy=lossy))

    def _fastest(self) -> Cell | None:
        """The fastest cell, exact ones first; None where none has a time."""
        timed = [(not cell.exact, cell.cp_ms.p50, cell) for cell in self._summary().cells if cell.cp_ms is not None]
        fastest = min(timed, key=lambda entry: entry[:2], default=None)
        return Cell(fastest[2].variant, fastest[2].threads) if fastest else None

    def _keep(self, record: CellRecord) -> CellRecord:
        self.records.append(record)
        if self.folder is not None:
            self.folder.append(record)
        return record

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def _summary(self) -> Summary:
        summary = summary_of(
            self.plan, self.records, self.facts, elapsed_s=self.budget.elapsed_s(), interrupted=self.interrupted
        )
        return self.roofline.marked(summary)

    def _write(self, folder: RunFolder, summary: Summary, streams: Streams | None) -> Path:
        folder.write_machine(self.facts)
        folder.write_summary(summary)
        folder.write_streams(streams)
        folder.write_pyperf()
        reports.write_html(folder.path, folder.path / "report.html")
        reports.write_markdown(folder.path, folder.path / "report.md")
        return folder.finish()
