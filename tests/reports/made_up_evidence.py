"""A made-up run with all that a run can have: rounds, A/A, a soak, a roofline, disturbances. No figure was measured."""

import random

from made_up_runs import realistic

from bench.records import (
    BandwidthPoint,
    CellRecord,
    GateOutcome,
    PeakPoint,
    Ratio,
    Repeatability,
    Roofline,
    Soak,
    SoakPoint,
    TeamRoof,
)

PASSED = GateOutcome(status="pass", detail="made up", codes_matched=30, codes_total=30)


def timed_record(variant="kv_bf16", threads=2, round=0, order=0, ms=(66.0, 66.1, 66.2), **changes):
    return CellRecord(
        variant=variant, threads=threads, model="made-up", round=round, order=order, phase="timed", gate=PASSED,
        samples_ns=[int(1e6 * one) for one in ms], **changes,
    )  # fmt: skip


def rounds_of(run, rounds=8, frames=6, drift=0.0, seed=5):
    """Timed records of every timed cell, in turn; a round takes ``drift`` longer than the one before."""
    draw = random.Random(seed)
    cells = [one for one in run.cells if one.cp_ms]
    for number in range(rounds):
        draw.shuffle(cells)
        for order, one in enumerate(cells):
            middle = one.cp_ms.p50 * (1 + drift * number) * draw.gauss(1, 0.01)
            disturbed = {"disturbed": "12% of CPU time stolen by other guests"} if (number, order) == (3, 2) else {}
            ms = [middle * draw.lognormvariate(0, 0.015) for _ in range(frames)]
            yield timed_record(one.variant, one.threads, number, order, ms, facts=disturbed)


def roofline():
    def team(threads, gbps):
        sizes = ((2**20, 4.0, "l2"), (2**24, 1.9, "cache"), (2**28, 1.0, "memory"))
        curve = [
            BandwidthPoint(bytes=size, gbps=gbps * more, best_gbps=1.02 * gbps * more, rows=4, prefetch_bytes=8192,
                           level=level)
            for size, more, level in sizes
        ]  # fmt: skip
        peaks = [("float32", "avx512", 100.0), ("float32", "avx2", 52.0), ("int8", "vnni", 400.0)]
        found = [PeakPoint(kind=kind, instruction_set=name, gmacs=threads * gmacs) for kind, name, gmacs in peaks]
        return TeamRoof(threads=threads, bandwidth=curve, peaks=found)

    return Roofline(measured_utc="2001-02-03T04:05:06Z", elapsed_s=9.0, teams=[team(1, 19.0), team(2, 40.0)])


def evident():
    """(summary, records, roofline)."""
    run = realistic()
    cells = [
        one.model_copy(
            update={
                "macs_per_frame": 1_212_000_000 * (8 if "recompute" in one.variant else 1),
                "mad_ms": 0.01 * one.cp_ms.p50, "p99_ms": 1.05 * one.cp_ms.p50,
                "energy_reason": "RAPL: the counters may be read by root only",
                "disturbed": ["round 4: 12% of CPU time stolen by other guests"] if one.variant == "kv_f32" else [],
            }
        )
        if one.cp_ms
        else one
        for one in run.cells
    ]  # fmt: skip
    points = [SoakPoint(at_s=float(at), ms=66 + 0.05 * at, frames=15) for at in range(60)]
    found = run.model_copy(
        update={
            "cells": cells,
            "repeatability": Repeatability(
                variant="kv_bf16", threads=2, rounds=8, ratio=Ratio(ratio=1.004, lo=0.991, hi=1.021), noise=0.021
            ),
            "soak": Soak(
                variant="kv_bf16", threads=2, seconds=60.0, frames=900, start_ms=66.1, end_ms=68.9, points=points
            ),
        }
    )  # fmt: skip
    return found, list(rounds_of(found)), roofline()
