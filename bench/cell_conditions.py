"""What happened to the machine while a cell was timed, and whether that spoils its times.

A snapshot is taken by the worker before and after its timed calls. Stolen and throttled time, heat, and other
processes on the CPUs that the team needed are the conditions under which a figure says little about an implementation:
such a measurement is kept, marked with the reason, and made once more (`bench.sweep`).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clock_and_heat import clock_mhz, heat_facts
from bench.host_load import Counters, load_between, steal_and_throttle
from bench.memory_facts import own_huge_bytes
from cplab.sysfiles import ROOT

#: Beyond these a measurement is marked. A jiffy is 10 ms as a rule, so a few of them are no share of anything.
HEAVY_STEAL_SHARE, LEAST_STEAL_MS = 0.05, 30.0
HEAVY_QUOTA_SHARE = 0.01
#: Share of a team's CPU time that others may take from it.
HEAVY_CROWD_SHARE, LEAST_CROWD_MS = 0.10, 50.0


class Watch:
    """From here until `told`: the conditions of a cell's timed part.

    Args:
        pinned: the CPUs that this process runs on; None where it is not pinned.
        threads: the team's size.
    """

    def __init__(self, pinned: Collection[int] | None, threads: int) -> None:
        self._pinned, self._threads, self._cpus = pinned, threads, os.cpu_count() or 1
        self._before = snapshot(pinned, self._cpus)

    def told(self) -> dict[str, Any]:
        """What `between` says of the time since then, and ``disturbed``: why it spoils the times, or ""."""
        found = between(self._before, snapshot(self._pinned, self._cpus))
        return {**found, "disturbed": disturbance(found, self._threads, self._cpus)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Counters and readings of one moment."""

    at_s: float
    own_cpu_s: float
    preempted: int
    counters: Counters
    mhz: float | None
    heat: dict[str, float | int | None]
    cpus: int


def snapshot(pinned: Collection[int] | None, cpus: int, root: Path = ROOT) -> Snapshot:
    """Take one.

    Args:
        pinned: the CPUs that this process runs on, of which the clock is read; None: the first ``cpus``.
        cpus: how many logical CPUs the machine has.
        root: where /proc and /sys are.
    """
    used = resource.getrusage(resource.RUSAGE_SELF)
    return Snapshot(
        at_s=time.monotonic(),
        own_cpu_s=used.ru_utime + used.ru_stime,
        preempted=used.ru_nivcsw,
        counters=steal_and_throttle(root),
        mhz=clock_mhz(pinned if pinned is not None else range(cpus), root),
        heat=heat_facts(root),
        cpus=cpus,
    )


def between(before: Snapshot, after: Snapshot, root: Path = ROOT) -> dict[str, Any]:
    """What two snapshots tell of the time between them, as plain data.

    Returns:
        What `bench.host_load.load_between` does, and: ``wall_s``; ``own_cpus`` and ``others_cpus``, how many CPUs this
        process and all others kept busy; ``preempted``, how often a thread of this process had to make room;
        ``clock_mhz``, ``celsius``: before and after; ``heat_throttles``, ``brake_steps``, ``speed_limit_percent``;
        ``huge_bytes``, this process's memory on huge pages. None where it is not told.
    """
    load = load_between(before.counters, after.counters)
    wall_s = after.at_s - before.at_s
    own_cpus = (after.own_cpu_s - before.own_cpu_s) / wall_s if wall_s > 0 else None
    busy = load["busy_share"]
    stolen = load["steal_share"] or 0.0
    # Stolen time counts as busy, and is nobody's here.
    others = None if busy is None or own_cpus is None else max(0.0, (busy - stolen) * before.cpus - own_cpus)
    counts = [moment.heat["throttle_count"] for moment in (before, after)]
    return {
        **load,
        "wall_s": round(wall_s, 4),
        "own_cpus": None if own_cpus is None else round(own_cpus, 3),
        "others_cpus": None if others is None else round(others, 3),
        "preempted": after.preempted - before.preempted,
        "clock_mhz": [before.mhz, after.mhz],
        "celsius": [before.heat["cpu_celsius"], after.heat["cpu_celsius"]],
        "heat_throttles": None if None in counts else max(0, int(counts[1] or 0) - int(counts[0] or 0)),
        "brake_steps": after.heat["brake_steps"],
        "speed_limit_percent": after.heat["speed_limit_percent"],
        "huge_bytes": own_huge_bytes(root),
    }


def disturbance(facts: Mapping[str, Any], threads: int, cpus: int) -> str:
    """Why a measurement says little, in one line, or "" where nothing is known against it.

    Args:
        facts: of a record, with what `between` returned; what is missing or None speaks against nothing.
        threads: the team's size.
        cpus: how many logical CPUs the machine has.
    """
    reasons = []
    wall_ms = 1000 * float(facts.get("wall_s") or 0.0)
    steal = float(facts.get("steal_share") or 0.0)
    if steal > HEAVY_STEAL_SHARE and steal * wall_ms * cpus >= LEAST_STEAL_MS:
        reasons.append(f"{steal:.0%} of CPU time stolen by other guests")
    stopped_ms = float(facts.get("throttled_ms") or 0.0)
    if wall_ms and stopped_ms > HEAVY_QUOTA_SHARE * wall_ms:
        reasons.append(f"stopped {stopped_ms:.0f} ms by the CPU quota")
    if facts.get("heat_throttles"):
        reasons.append(f"clock lowered {facts['heat_throttles']} times by heat")
    if facts.get("brake_steps"):
        reasons.append(f"clock capped by heat ({facts['brake_steps']} steps)")
    if (facts.get("speed_limit_percent") or 100) < 100:
        reasons.append(f"speed limited to {facts['speed_limit_percent']} % by heat")
    team = min(threads, cpus)
    missing = max(0.0, float(facts.get("others_cpus") or 0.0) + team - cpus)
    if missing > HEAVY_CROWD_SHARE * team and missing * wall_ms >= LEAST_CROWD_MS:
        reasons.append(f"other processes took {missing:.1f} of the {team} CPUs that it needs")
    return "; ".join(reasons)
