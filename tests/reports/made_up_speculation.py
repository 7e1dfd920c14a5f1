"""A made-up run of exact variants, drafts among them, and a curve over acceptance. No figure here was measured."""

from __future__ import annotations

from made_up_evidence import PASSED
from made_up_runs import cell, interval, summary

from bench.records import CellRecord, Comparison, CurvePoint, Ratio, Speculation, SpeculationCurve

CPU = "Imaginary 9000"


def compared(a, b, speed, threads=2, verdict="faster"):
    """What a run says of b beside a: ratios of comparisons are of times."""
    ratio = Ratio(ratio=1 / speed, lo=1 / (1.02 * speed), hi=1 / (0.98 * speed))
    return Comparison(
        a=f"{a} x {threads}", b=f"{b} x {threads}", verdict=verdict, ratio=ratio, p=0.01, rounds=8, limit=0.02
    )


def exact_run(**changes):
    """F32, BF16, F16, packed BF16 and two that speculate; a recomputing one, and a quantised one."""
    macs = 1_212_000_000
    cells = [
        cell("kv_f32", 2, 131.0, bytes_per_frame=4_844_000_000, macs_per_frame=macs),
        cell("kv_bf16", 2, 66.0, macs_per_frame=macs),
        cell("kv_f16", 2, 66.4, macs_per_frame=macs),
        cell("kv_bf12", 2, 50.5, bytes_per_frame=1_829_000_000, macs_per_frame=macs),
        cell("kv_bf12", 1, 98.0, bytes_per_frame=1_829_000_000, macs_per_frame=macs),
        cell("spec_bf16", 2, 41.0, bytes_per_frame=1_201_000_000, passes_per_frame=6),
        cell("spec_bf12", 2, 36.0, bytes_per_frame=911_000_000, passes_per_frame=6),
        cell("recompute_f16", 2, 214.0, macs_per_frame=8 * macs),
        cell("kv_q8_0", 2, 28.4, format="q8_0", arithmetic="q8_0", exact=False, bytes_per_frame=1_290_000_000),
    ]
    comparisons = [
        compared("kv_f32", "kv_bf16", 1.98),
        compared("kv_f32", "kv_bf12", 2.59),
        compared("kv_bf16", "kv_bf12", 1.31),
        compared("kv_bf16", "kv_f16", 0.994, verdict="undecided"),
        compared("kv_bf16", "spec_bf16", 1.61),
        compared("kv_bf12", "spec_bf12", 1.4),
        compared("kv_bf16", "spec_bf12", 1.83),
    ]
    return summary(cells, **{
        "comparisons": comparisons, "roof": {"threads": {"1": 20.0, "2": 39.0}}, "machine": {"cpu": {"model": CPU}},
        "model": {"name": "synthetic:0.6b-predictable", "synthetic": True}, **changes,
    })  # fmt: skip


def drafted(frames=24, passes=6.2):
    """What a worker tells of its drafts; none of CB1 and CB14 was compared."""
    asked = [0, *(frames - at for at in range(12)), 0, 3]
    return {
        "frames": frames, "passes_per_frame": passes, "asked": asked, "held": [round(0.7 * count) for count in asked]
    }  # fmt: skip


def exact_records(run):
    """Two timed records of each cell, with facts of drafts where it speculates."""
    return [
        CellRecord(
            variant=one.variant, threads=one.threads, model=run.model.name, round=number, order=0, phase="timed",
            gate=PASSED, samples_ns=[int(1e6 * one.cp_ms.p50)] * 4,
            facts={"speculation": drafted() if one.variant.startswith("spec") else None},
        )
        for number in range(2)
        for one in run.cells
        if one.cp_ms
    ]  # fmt: skip


def curve(variant="spec_bf16", run=None, **changes):
    """Speeds from nothing held to everything, and the model's own drafts."""
    run = run or exact_run()
    shares = [(0.0, 0.97), (0.5, 1.3), (0.8, 1.9), (1.0, 4.1)]
    points = [
        CurvePoint(
            share=share, held=share, codes_per_pass=1 + 6 * share, passes_per_frame=15 / (1 + 6 * share),
            ms=interval(66 / speed), speedup=Ratio(ratio=speed, lo=0.97 * speed, hi=1.02 * speed),
        )
        for share, speed in shares
    ]  # fmt: skip
    own = points[1].model_copy(update={"share": None, "held": 0.71})
    fields = {
        "variant": variant, "plain": variant.replace("spec", "kv"), "threads": 2, "model": run.model.name,
        "digest": run.model.digest, "synthetic": True, "cpu": CPU, "started_utc": "2001-02-03T04:05:06Z",
        "commit": "abcdef012", "dirty": False, "tool_version": "0.1.0", "command": "python -m bench speculation",
        "rounds": 12, "plain_ms": interval(66.0), "points": [*points, own],
    }  # fmt: skip
    return SpeculationCurve(**(fields | changes))


def curves(run):
    slower = [
        one.model_copy(update={"held": 0.97 * one.held, "speedup": Ratio(**{
            end: 0.9 * getattr(one.speedup, end) for end in ("ratio", "lo", "hi")
        })})
        for one in curve(run=run).points
    ]  # fmt: skip
    return Speculation(curves=[curve(run=run), curve("spec_bf12", run=run, points=slower)])
