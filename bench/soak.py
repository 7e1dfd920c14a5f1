"""A soak: one cell, one process, frame after frame for a long time, so that heat and throttling show.

A soak's samples are no rounds: they enter no figure of the cell's, and inputs come again once the golden is through.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from bench.records import CellRecord, Soak, SoakPoint

#: A soak is shown as so many stretches of equal length.
STRETCHES = 60
#: The start and the end that are told are tenths of the time.
TENTH = 0.1


def soak_of(records: Iterable[CellRecord]) -> Soak | None:
    """The time course of the run's soak; None where there was none, or it went wrong.

    Where a run was gone on with there may be two; the longer one is told.
    """
    found = [record for record in records if record.phase == "soak" and record.samples_ns and record.sample_at_ns]
    if not found:
        return None
    record = max(found, key=lambda one: one.sample_at_ns[-1])
    seconds = (record.sample_at_ns[-1] + record.samples_ns[-1]) / 1e9
    frames = [(at / 1e9, ns / 1e6) for at, ns in zip(record.sample_at_ns, record.samples_ns, strict=True)]
    stretch_s = seconds / STRETCHES
    stretches: dict[int, list[float]] = {}
    for at_s, ms in frames:
        stretches.setdefault(int(at_s / stretch_s), []).append(ms)
    return Soak(
        variant=record.variant,
        threads=record.threads,
        seconds=seconds,
        frames=len(frames),
        # The first frame began at 0 and the last one ends the soak, so that neither tenth is empty.
        start_ms=median(ms for at_s, ms in frames if at_s <= TENTH * seconds),
        end_ms=median(ms for at_s, ms in frames if at_s + ms / 1e3 >= (1 - TENTH) * seconds),
        points=[
            SoakPoint(at_s=number * stretch_s, ms=median(values), frames=len(values))
            for number, values in sorted(stretches.items())
        ],
    )
