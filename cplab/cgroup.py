"""What the control group grants this process: CPU quota, memory limit, throttling counters. Linux, v1 and v2.

A container's limits show nowhere else: the CPU count and the load average that it sees are the host's. The files
are documented in the kernel's ``admin-guide/cgroup-v2`` and ``scheduler/sched-bwc``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cplab.sysfiles import ROOT, parse_pairs, read_int, read_text

_NO_LIMIT_BYTES = 1 << 60  # v1 writes "no limit" as the largest page-aligned 64-bit number


def _memberships(root: Path) -> dict[str, str]:
    """Controller -> this process's path in that hierarchy; the v2 hierarchy has the name ""."""
    found = {}
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            found.update(dict.fromkeys(parts[1].split(","), parts[2]))
    return found


def _mounts(root: Path) -> Iterator[tuple[str, str, Path]]:
    """(controller, the hierarchy's path at the mount, mount point) of each mounted hierarchy; "" for v2."""
    for line in (read_text(root / "proc/self/mountinfo") or "").splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        point = root / fields[4].lstrip("/")
        if kind[0] == "cgroup2":
            yield "", fields[3], point
        elif kind[0] == "cgroup":
            for controller in kind[2].split(","):
                yield controller, fields[3], point


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """The control group's folders for ``controller``, this process's own first, then its ancestors'.

    In a container the mount may show only a part of the hierarchy, or /proc may give a path outside of it: then
    the mount point itself is the group that counts.
    """
    members = _memberships(root)
    for name, at_mount, point in _mounts(root):
        if name not in ("", controller) or name not in members:
            continue
        path = PurePosixPath(members[name])
        inside = path.relative_to(at_mount) if path.is_relative_to(at_mount) else PurePosixPath()
        if ".." in inside.parts:
            inside = PurePosixPath()
        for below in (inside, *inside.parents) if inside.parts else (inside,):
            yield point / below


def cpu_quota(root: Path = ROOT) -> float | None:
    """The tightest CPU quota on the way up, in CPUs (1.5: one and a half), or None where there is none."""
    quotas = []
    for folder in _folders("cpu", root):
        quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        if quota.isdigit() and period.isdigit() and int(period):
            quotas.append(int(quota) / int(period))
        v1_quota, v1_period = read_int(folder / "cpu.cfs_quota_us"), read_int(folder / "cpu.cfs_period_us")
        if v1_quota and v1_period and v1_quota > 0:
            quotas.append(v1_quota / v1_period)
    return min(quotas, default=None)


def memory_limit_bytes(root: Path = ROOT) -> int | None:
    """The tightest memory limit on the way up, or None where there is none."""
    limits = [
        limit
        for folder in _folders("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := read_int(folder / name)) is not None and limit < _NO_LIMIT_BYTES
    ]
    return min(limits, default=None)


def throttling(root: Path = ROOT) -> tuple[int | None, int | None]:
    """How often the quota stopped this group or an ancestor, and for how many microseconds, since their start."""
    times: list[int] = []
    waits_usec: list[int] = []
    for folder in _folders("cpu", root):
        lines = parse_pairs(read_text(folder / "cpu.stat")).items()
        stat = {name: int(value) for name, value in lines if value.isdigit()}
        if "nr_throttled" in stat:
            times.append(stat["nr_throttled"])
            waits_usec.append(stat.get("throttled_usec", stat.get("throttled_time", 0) // 1000))
    return (sum(times), sum(waits_usec)) if times else (None, None)
