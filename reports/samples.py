"""The raw samples of a run's records, as the charts over them want them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.records import CellRecord


def timed(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Records of timed measurements whose gate passed, in the order in which they were made.

    A cell's second name (A/A) is a cell here.
    """
    return [
        record for record in records if record.phase == "timed" and record.gate.status == "pass" and record.samples_ns
    ]


def frames_ms(records: Sequence[CellRecord]) -> dict[tuple[str, int], list[float]]:
    """All frames of each (variant, threads), milliseconds, ascending."""
    found: dict[tuple[str, int], list[float]] = {}
    for record in timed(records):
        found.setdefault((record.variant, record.threads), []).extend(ns / 1e6 for ns in record.samples_ns)
    return {key: sorted(samples) for key, samples in found.items()}
