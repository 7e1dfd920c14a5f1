"""Frames of several utterances at once as more cells of a sweep's rounds, and what their records come to.

``predict`` takes ``[B, width]``: B streams that speak at the same time get a frame each from one pass over the weights.
A sweep with ``--batch`` times the calls with B frames in the same rounds as those with one: of the cell that is in
front, or of every cell where thread counts were asked for. What is told is how long a call takes, what that is for a
frame, and how many frames a second all streams get together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.cells import LEAST_FRAMES, SLACK, Cell, quick_ms, worker_seconds
from bench.records import CellRecord, Interval, Rate, Ratio, StreamPoint, StreamRecord, Streams, Summary
from bench.repeating import disturbed_rounds
from bench.run_folder import RunFolder
from bench.stats import median_of_rounds, paired_ratio
from bench.timed_rounds import Key, Rounds, rounds_of, timed_records


class StreamCells:
    """The cells of one sweep that get several frames a call.

    Args:
        batches: frames a call, each above 1.
        records: of a run that is gone on with.
        folder: of the run, or None.

    Attributes:
        cells: those to measure in each round.
        records: all so far.
    """

    def __init__(self, batches: Sequence[int], records: Sequence[StreamRecord], folder: RunFolder | None) -> None:
        self.batches, self.records = list(batches), list(records)
        self._folder = folder
        self.cells: list[Cell] = []

    def choose(self, singles: Iterable[Cell]) -> None:
        """Which cells get several frames a call."""
        self.cells = [Cell(cell.variant, cell.threads, batch) for cell in singles for batch in self.batches]

    def need_s(self, gated: Iterable[CellRecord], rounds: int) -> float:
        """About how many seconds of the budget the cell in front will take at least, as far as can be told."""
        if not self.batches:
            return 0.0
        times = [quick_ms(record) for record in gated if record.phase == "gate" and record.gate.status == "pass"]
        fastest = min(times, default=0.0)
        return SLACK * rounds * sum(worker_seconds(batch * fastest, LEAST_FRAMES) for batch in self.batches)

    def keep(self, cell: Cell, record: CellRecord) -> CellRecord:
        """Take a record in."""
        found = StreamRecord(batch=cell.batch, measured=record)
        self.records.append(found)
        if self._folder is not None:
            self._folder.append_stream(found)
        return record

    def measured(self) -> set[tuple[Cell, int]]:
        """Cells and rounds that have a record."""
        return {(_cell(record), record.measured.round) for record in self.records}

    def wrong(self) -> set[Cell]:
        """Cells of which a record failed or crashed."""
        return {_cell(record) for record in self.records if record.measured.gate.status in ("fail", "crash")}


def _cell(record: StreamRecord) -> Cell:
    return Cell(record.measured.variant, record.measured.threads, record.batch)


def rounds_of_streams(records: Iterable[StreamRecord]) -> dict[Cell, Rounds]:
    """Samples of whole calls by cell and round; of cells of which no record failed or crashed."""
    found: dict[int, list[CellRecord]] = {}
    for record in records:
        found.setdefault(record.batch, []).append(record.measured)
    return {
        Cell(*key, batch): rounds_of(timed)
        for batch, measured in found.items()
        for key, timed in timed_records(measured).items()
    }


def streams_of(records: Sequence[StreamRecord], singles: Iterable[CellRecord], summary: Summary) -> Streams | None:
    """What a run's streams came to; None where it measured none.

    Args:
        records: with several frames a call.
        singles: the run's other records.
        summary: of these.
    """
    alone = {key: rounds_of(timed) for key, timed in timed_records(singles).items()}
    points = []
    for cell in summary.cells:
        key = (cell.variant, cell.threads)
        own = [record for record in records if (record.measured.variant, record.measured.threads) == key]
        if not own:
            continue
        by_batch: dict[int, list[CellRecord]] = {}
        for record in own:
            by_batch.setdefault(record.batch, []).append(record.measured)
        first = StreamPoint(
            variant=cell.variant, threads=cell.threads, batch=1, exact=cell.exact, gate=cell.gate,
            detail=cell.reason or cell.gate_detail, disturbed=cell.disturbed,
            **_times(alone.get(key, {}), 1, {}),
        )  # fmt: skip
        points.append(first)
        for batch in sorted(by_batch):
            points.append(_point(first, batch, by_batch[batch], alone.get(key, {})))
    return Streams(points=points) if points else None


def _point(first: StreamPoint, batch: int, measured: list[CellRecord], alone: Rounds) -> StreamPoint:
    worst = next((one for one in measured if one.gate.status in ("fail", "crash")), measured[0])
    gate = worst.gate.status
    key: Key = (first.variant, first.threads)
    timed = timed_records(measured).get(key, [])
    return StreamPoint(
        variant=first.variant, threads=first.threads, batch=batch, exact=first.exact and gate == "pass", gate=gate,
        detail=worst.reason or worst.gate.detail, disturbed=disturbed_rounds(timed),
        golden_frames=next((frames for one in timed if (frames := one.facts.get("golden_frames"))), None),
        **_times(rounds_of(timed), batch, alone),
    )  # fmt: skip


def _times(rounds: Rounds, batch: int, alone: Rounds) -> dict[str, Any]:
    if not rounds:
        return {}
    call = median_of_rounds([[sample / 1e6 for sample in samples] for samples in rounds.values()])
    ratio = paired_ratio(rounds, alone) if alone else None
    return {
        "rounds": len(rounds),
        "calls": sum(len(samples) for samples in rounds.values()),
        "call_ms": call,
        "frame_ms": Interval(p50=call.p50 / batch, lo=call.lo / batch, hi=call.hi / batch, min=call.min / batch),
        "frames_per_s": _per_second(call, batch),
        "gain": ratio and Ratio(ratio=batch * ratio.ratio, lo=batch * ratio.lo, hi=batch * ratio.hi),
    }


def _per_second(call: Interval, batch: int) -> Rate:
    per = 1000 * batch
    return Rate(p50=per / call.p50, lo=per / call.hi, hi=per / call.lo)
