"""Rooflines and cells with round numbers."""

from bench.records import BandwidthPoint, CellSummary, Interval, PeakPoint, Roofline, TeamRoof

MIB = 1 << 20


def curve(*points):
    return [
        BandwidthPoint(bytes=size, gbps=best * 0.9, best_gbps=best, rows=4, prefetch_bytes=0, level=level)
        for size, best, level in points
    ]


def roofline():
    """One thread: 100 GB/s from L2, 10 from memory, 50 GMAC/s in float32 and 200 in int8."""
    team = TeamRoof(
        threads=1,
        cpus=[0],
        bandwidth=curve((MIB, 100.0, "l2"), (16 * MIB, 40.0, "cache"), (256 * MIB, 10.0, "memory")),
        peaks=[
            PeakPoint(kind="float32", instruction_set="AVX-512", gmacs=50.0),
            PeakPoint(kind="int8", instruction_set="AVX-512 VNNI", gmacs=200.0),
            PeakPoint(kind="float32", instruction_set="AVX2", gmacs=30.0),
        ],
    )
    return Roofline(measured_utc="2026-01-01T00:00:00Z", elapsed_s=3.0, teams=[team])


def cell(ms, *, bytes_per_frame=15 * 256 * MIB, macs=10**9, passes=15, arithmetic="f32", **changed):
    fields = {
        "variant": "kv",
        "format": "bf16",
        "arithmetic": arithmetic,
        "tier": "exact",
        "threads": 1,
        "gate": "pass",
        "gate_detail": "",
        "exact": arithmetic == "f32",
        "cp_ms": Interval(p50=ms, lo=ms, hi=ms, min=ms),
        "bytes_per_frame": bytes_per_frame,
        "passes_per_frame": passes,
        "macs_per_frame": macs,
    }
    return CellSummary(**(fields | changed))
