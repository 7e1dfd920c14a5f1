"""From records to ``summary.json``: what a sweep's cells came to, and what may be said of each.

The gate rules over times twice. A record that failed cannot hold a time (`bench.records`); a cell of which any record
failed has none either, since an implementation that is wrong in one round is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median
from typing import Any

from bench.records import (
    CellRecord,
    CellSummary,
    Fidelity,
    ModelFacts,
    Reference,
    RunFacts,
    Status,
    Summary,
    Talker,
    Tier,
    WithoutTalker,
)
from bench.repeatability import repeatability
from bench.repeating import disturbed_rounds
from bench.soak import soak_of
from bench.stats import median_of_rounds, paired_ratio, spread
from bench.timed_rounds import Key, Rounds, baseline_rounds, rounds_of, timed_records, when
from cplab.tablet import TABLET

FRAME_MS = 80.0
"""Audio in one frame: 12.5 frames a second."""

_SEVERITY: dict[Status, int] = {"skip": 0, "pass": 1, "fail": 2, "crash": 3}


@dataclass(frozen=True, slots=True)
class CellInfo:
    """What is known of a cell apart from its records.

    Attributes:
        lossy_weights: how many weights the variant's packing changed.
        fidelity: share of codes equal to the f32 golden's, where it was measured.
        reason: why there is nothing to measure, where that is known beforehand.
        engine_note: what the variant says of the engine that it runs on.
        revision: the commit whose code runs, where that is another tree's.
        source_digest: of the sources that the variant is made of (`bench.sources`).
    """

    variant: str
    format: str
    arithmetic: str
    tier: Tier
    threads: int
    lossy_weights: int = 0
    fidelity: Fidelity = field(default_factory=Fidelity)
    reason: str = ""
    engine_note: str = ""
    revision: str = ""
    source_digest: str = ""


def summarise(
    records: Iterable[CellRecord],
    cells: Sequence[CellInfo],
    *,
    model: ModelFacts,
    machine: dict[str, Any],
    run: RunFacts,
    baseline: str,
    talker: Talker | None = None,
    without_talker: WithoutTalker | None = None,
) -> Summary:
    """Digest one run.

    Args:
        records: every record of the run, of both phases, in any order.
        cells: every cell that was asked for, in the order in which it shall stand; one without records is a skip.
        model: what was measured.
        machine: facts of the machine.
        run: how the run was made.
        baseline: the variant that the others are compared with, at its fastest passing thread count.
        talker: the talker's times, where they were measured.
        without_talker: why they were not.

    Raises:
        ValueError: a record's cell is not among ``cells``, a cell stands there twice, or records are of two models.
    """
    records = list(records)
    by_cell: dict[Key, list[CellRecord]] = {(info.variant, info.threads): [] for info in cells}
    if len(by_cell) < len(cells):
        raise ValueError("a cell is described twice")
    if len(names := {record.model for record in records}) > 1:
        raise ValueError(f"records of several models in one run: {', '.join(sorted(names))}")
    for record in records:
        owner = record.twin_of or record.variant
        if (owner, record.threads) not in by_cell:
            raise ValueError(f"a record of {record.variant} x {record.threads}, which is not described")
        if not record.twin_of or record.gate.status in ("fail", "crash"):
            # Times under a cell's second name are the A/A's alone; what goes wrong there went wrong in the cell.
            by_cell[owner, record.threads].append(record)
    timed = timed_records(records)
    against = baseline_rounds(timed, baseline)
    return Summary(
        model=model,
        machine=machine,
        run=run,
        baseline=baseline,
        cells=[
            _cell(info, by_cell[key], timed.get(key, []), against) for key, info in zip(by_cell, cells, strict=True)
        ],
        talker=talker,
        without_talker=without_talker,
        roof={"threads": _roof_gbps(timed)},
        reference=Reference(name=TABLET.name, talker_ms=TABLET.talker_ms, cp_ms=TABLET.cp_ms, rtf=TABLET.rtf),
        repeatability=repeatability(records),
        soak=soak_of(records),
    )


def _cell(info: CellInfo, records: list[CellRecord], timed: list[CellRecord], baseline: Rounds) -> CellSummary:
    in_order = sorted(records, key=when)
    judge = max(in_order, key=lambda record: _SEVERITY[record.gate.status], default=None)
    gate: Status = judge.gate.status if judge else "skip"
    detail = _detail(judge, in_order)
    if judge and gate in ("fail", "crash"):
        reason = judge.reason if judge.reason not in detail else ""  # the detail says it, with its round
    else:
        reason = next((record.reason for record in in_order if record.reason), "")
    shared: dict[str, Any] = {
        "variant": info.variant,
        "format": info.format,
        "arithmetic": info.arithmetic,
        "tier": info.tier,
        "threads": info.threads,
        "gate": gate,
        "gate_detail": detail,
        "exact": info.tier == "exact" and info.arithmetic == "f32" and not info.lossy_weights and gate == "pass",
        "passes_per_frame": _first(record.passes_per_frame for record in in_order),
        "bytes_per_frame": _first(record.bytes_per_frame for record in in_order),
        "fidelity": info.fidelity,
        "oversubscribed": any(record.oversubscribed for record in records),
        "lossy_weights": info.lossy_weights,
        "checks": judge.gate.checks if judge else [],
        "reason": info.reason or reason,
        "engine_note": info.engine_note,
        "revision": info.revision,
        "source_digest": info.source_digest,
    }
    times = _times(timed, shared["bytes_per_frame"], baseline) if timed else {}
    return CellSummary(**shared, **times)


def _detail(judge: CellRecord | None, in_order: list[CellRecord]) -> str:
    """What the deciding record says; with its round, and other rounds that went wrong, where it was a timed one."""
    if judge is None:
        return ""
    text = judge.gate.detail or judge.reason
    if judge.phase == "gate" or judge.gate.status not in ("fail", "crash"):
        return text
    bad = {record.round for record in in_order if record.phase == "timed" and record.gate.status in ("fail", "crash")}
    others = ", ".join(str(number) for number in sorted(bad - {judge.round}))
    return f"round {judge.round}: {text or judge.gate.status}{f' (not the only one: also {others})' if others else ''}"


def _times(timed: list[CellRecord], bytes_per_frame: int | None, baseline: Rounds) -> dict[str, Any]:
    rounds = rounds_of(timed)
    per_round_ms = [[sample / 1e6 for sample in samples] for samples in rounds.values()]
    cp_ms = median_of_rounds(per_round_ms)
    scatter = spread(per_round_ms)
    first_call_ns = _median(record.first_call_ns for record in timed)
    found = {
        "rounds": len(rounds),
        "frames": sum(len(samples) for samples in per_round_ms),
        "cp_ms": cp_ms,
        "round_medians_ms": [median(samples) for samples in per_round_ms],
        "code_ms": _code_ms(timed),
        "speedup_vs_baseline": paired_ratio(rounds, baseline),
        "rtf_cp": cp_ms.p50 / FRAME_MS,
        "first_call_ms": None if first_call_ns is None else first_call_ns / 1e6,
        "load_s": _median(record.load_s for record in timed),
        "compile_s": _median(record.compile_s for record in timed),
        "rss_mb": max((record.rss_mb for record in timed if record.rss_mb is not None), default=None),
        "mad_ms": scatter.mad,
        "p99_ms": scatter.p99,
        "outliers": scatter.outliers,
        "macs_per_frame": _first(record.facts.get("macs_per_frame") for record in timed),
        "joules_per_frame": _median(record.facts.get("joules_per_frame") for record in timed),
        "energy_reason": next((text for record in timed if (text := record.facts.get("energy_reason"))), ""),
        "disturbed": disturbed_rounds(timed),
    }
    if not bytes_per_frame:
        return found
    found["gbps"] = bytes_per_frame / cp_ms.p50 / 1e6
    roof_ns_per_byte = _roof_ns_per_byte(timed)
    if roof_ns_per_byte is None:
        return found
    roof_ms = roof_ns_per_byte * bytes_per_frame / 1e6
    share = roof_ms / cp_ms.p50
    return found | {"roof_ms": roof_ms, "roof_fraction": share, "roof_suspect": share > 1}


def _code_ms(timed: list[CellRecord]) -> list[float]:
    """Median of each pass over all frames; a pass that some frames did not need is the median of those that did."""
    frames = [frame for record in timed for frame in record.pass_ns]
    return [median(ns for ns in column if ns is not None) / 1e6 for column in zip_longest(*frames)]


def _roof_ns_per_byte(timed: list[CellRecord]) -> float | None:
    """The best of the read-only kernel's configurations, each the median over rounds of its median in a round."""
    configurations: dict[tuple[int, int], dict[int, list[float]]] = {}
    for record in timed:
        for sample in record.roof:
            if sample.bytes > 0 and sample.ns > 0:
                rounds = configurations.setdefault((sample.prefetch_bytes, sample.rows), {})
                rounds.setdefault(record.round, []).append(sample.ns / sample.bytes)
    return min((median(median(found) for found in rounds.values()) for rounds in configurations.values()), default=None)


def _roof_gbps(timed: dict[Key, list[CellRecord]]) -> dict[str, float]:
    """The fastest reading that any cell's roof shows, GB/s by thread count."""
    best: dict[int, float] = {}
    for (_, threads), found in timed.items():
        roof_ns_per_byte = _roof_ns_per_byte(found)
        if roof_ns_per_byte is not None:
            best[threads] = max(best.get(threads, 0.0), 1 / roof_ns_per_byte)
    return {str(threads): best[threads] for threads in sorted(best)}


def _first(values: Iterable[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
