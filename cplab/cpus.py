"""How many CPUs this process may use."""

from __future__ import annotations

import math
import os
from pathlib import Path

from cplab.cgroup import cpu_quota
from cplab.sysfiles import ROOT


def affinity() -> set[int] | None:
    """Logical CPUs that this process may run on (cpusets count in), or None where the platform has no such notion."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    try:
        return os.sched_getaffinity(0)
    except OSError:
        return None


def allowed_cpus(root: Path = ROOT) -> int:
    """How many CPUs affinity and the cgroup quota both allow, at least 1; half a CPU of quota is not a CPU."""
    usable = len(affinity() or ()) or os.cpu_count() or 1
    quota = cpu_quota(root)
    return max(1, usable if quota is None else min(usable, math.floor(quota)))
