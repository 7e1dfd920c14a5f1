"""Measuring the machine's roofline: a worker for each thread count, and one for each narrower instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from bench import machine
from bench.bandwidth_curve import curve_sizes
from bench.instruction_set import LEVELS, Level
from bench.records.roofline import BandwidthPoint, PeakPoint, Roofline, TeamRoof
from bench.roofline_worker import RooflineJob, RooflineResult

TIMEOUT_S = 180.0

Say = Callable[[str], None]


def measured_roofline(
    facts: Mapping[str, Any], threads: Iterable[int], say: Say = lambda what: None, timeout_s: float = TIMEOUT_S
) -> Roofline:
    """Measure; a few seconds for each thread count. What a worker cannot do becomes the reason of its thread count.

    Args:
        facts: of the machine, as `bench.machine.facts` tells them: its caches and its free memory are looked at.
        threads: team sizes.
        say: called with what is measured next.
        timeout_s: after which a worker counts as hung.
    """
    began = time.monotonic()
    caches = facts["cpu"].get("caches")
    available = facts["memory"].get("available_bytes")
    limit = facts["memory"].get("limit_bytes")
    usable = min((size for size in (available, limit) if size), default=None)
    teams = []
    for count in threads:
        say(f"{count} thread{'s' * (count > 1)}")
        job = RooflineJob(
            threads=count, cpus=machine.pinning(count), sizes=curve_sizes(caches, count, usable), caches=caches
        )
        teams.append(_team(job, say, timeout_s))
    return Roofline(
        measured_utc=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        elapsed_s=round(time.monotonic() - began, 1),
        teams=teams,
    )


def _team(job: RooflineJob, say: Say, timeout_s: float) -> TeamRoof:
    own = _run(job, Level(), timeout_s)
    if isinstance(own, str):
        return TeamRoof(threads=job.threads, cpus=job.cpus, reason=own)
    peaks, reasons = list(own.peaks), []
    for name in own.narrower:
        say(f"{job.threads} threads, {name}")
        cut = _run(job.model_copy(update={"sizes": []}), LEVELS[name], timeout_s)
        if isinstance(cut, str):
            reasons.append(f"{name}: {cut}")
        else:
            peaks += cut.peaks
    return TeamRoof(threads=job.threads, cpus=job.cpus, bandwidth=own.bandwidth, peaks=peaks, reason="; ".join(reasons))


def _run(job: RooflineJob, level: Level, timeout_s: float) -> RooflineResult | str:
    """A worker's result, or why there is none."""
    here = str(Path(__file__).resolve().parent.parent)
    paths = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH", ""))))
    environment = os.environ | level.environment | {"NUMBA_NUM_THREADS": str(job.threads), "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "bench.roofline_worker"],
            input=job.model_dump_json(),
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no result within {timeout_s:g} s; the worker was ended"
    try:
        return RooflineResult.model_validate_json(done.stdout)
    except ValidationError:
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return f"its worker ended with {done.returncode}: {last}"


def best_of(first: Roofline, second: Roofline) -> Roofline:
    """Two measurements of one machine as one: what was reached once can be reached."""
    again = {team.threads: team for team in second.teams}
    known = {team.threads for team in first.teams}
    teams = [_better(team, again[team.threads]) if team.threads in again else team for team in first.teams]
    teams += [team for team in second.teams if team.threads not in known]
    return second.model_copy(
        update={"teams": teams, "elapsed_s": round(first.elapsed_s + second.elapsed_s, 1)},
    )


def _better(a: TeamRoof, b: TeamRoof) -> TeamRoof:
    points: dict[int, BandwidthPoint] = {}
    for point in (*a.bandwidth, *b.bandwidth):
        known = points.get(point.bytes)
        faster = point if known is None or point.gbps > known.gbps else known
        best = max(point.best_gbps, known.best_gbps if known else 0.0)
        points[point.bytes] = faster.model_copy(update={"best_gbps": best})
    peaks: dict[tuple[str, str], PeakPoint] = {}
    for peak in (*a.peaks, *b.peaks):
        key = (peak.kind, peak.instruction_set)
        if key not in peaks or peak.gmacs > peaks[key].gmacs:
            peaks[key] = peak
    return TeamRoof(
        threads=a.threads,
        cpus=a.cpus,
        bandwidth=[points[size] for size in sorted(points)],
        peaks=list(peaks.values()),
        reason=a.reason and b.reason,
    )
