"""Profiles whose every figure is known."""

from __future__ import annotations

from bench.records import CellRecord, GateOutcome, ProfileSamples
from cplab.laps import PARTS

MS = 1_000_000
#: Milliseconds of each part in each pass of a frame, on member 0; member 1 does half of it and waits for the rest.
PART_MS = {"qkv": 2, "attention": 1, "o": 1, "gate_up": 3, "down": 2, "head": 1}


def laps(scale=1, passes=2, members=2):
    """``[members][passes][parts]`` ns of a frame of ``20 * scale`` ms."""
    found = []
    for member in range(members):
        share = 1 if member == 0 else 0.5
        times = {name: int(MS * ms * share * scale) for name, ms in PART_MS.items()}
        times["wait"] = 10 * MS * scale - sum(times.values())
        found.append([[times.get(name, 0) for name in PARTS]] * passes)
    return found


def samples(scales=(1, 1, 1, 1), **changes):
    """Traced frames take 21 ms times their scale, untraced ones 20 ms."""
    streamed = {"qkv": 60_000_000, "o": 30_000_000, "gate_up": 90_000_000, "down": 60_000_000, "head": 30_000_000}
    given = {
        "parts": list(PARTS),
        "part_bytes": [streamed.get(name, 0) for name in PARTS],
        "traced_ns": [21 * MS * scale for scale in scales],
        "untraced_ns": [20 * MS * scale for scale in scales],
        "laps_ns": [laps(scale) for scale in scales],
    }
    return ProfileSamples(**given | changes)


def record(profile=None, **changes):
    """A profile worker's record."""
    given = {
        "variant": "kv_made_up", "threads": 2, "model": "synthetic:tiny", "round": 0, "order": 0, "phase": "profile",
        "gate": GateOutcome(status="pass", detail="6/6 codes"), "profile": profile or samples(),
        "started_utc": "2026-01-31T12:00:00Z",
    }  # fmt: skip
    return CellRecord(**given | changes)
