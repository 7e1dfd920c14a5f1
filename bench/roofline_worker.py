"""``python -m bench.roofline_worker``: one thread count's roofs, as JSON on standard output.

A process of its own for the reasons that a cell has one: it pins itself before numba is imported, its thread pool has
the team's size, and numba's target is what the environment says.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from bench.records.roofline import BandwidthPoint, PeakPoint
from cplab.orphans import die_with_parent


class RooflineJob(BaseModel):
    """What to measure, on standard input: with no sizes the peaks alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    threads: int = Field(ge=1)
    cpus: list[int] | None = None
    sizes: list[int] = Field(default_factory=list)
    caches: dict[str, Any] | None = None


class RooflineResult(BaseModel):
    """What was measured, and which narrower instruction sets this CPU has beside the one that was used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bandwidth: list[BandwidthPoint]
    peaks: list[PeakPoint]
    narrower: list[str]


def main() -> int:
    """Read the job, measure, print the result."""
    die_with_parent()
    job = RooflineJob.model_validate_json(sys.stdin.read())
    if job.cpus is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, job.cpus)
    print(measured(job).model_dump_json())
    return 0


def measured(job: RooflineJob) -> RooflineResult:
    """Do a job in this process."""
    from bench.bandwidth_curve import measured_curve
    from bench.instruction_set import instruction_set, narrower_levels
    from cplab.kernels.peak import measured_peak
    from cplab.kernels.peak_int8 import measured_int8_peak

    names = instruction_set()
    peaks: list[PeakPoint] = []
    if not names["float32"].endswith("without fma"):  # in software it takes minutes, and nobody's roof is there
        gmacs = round(measured_peak(job.threads), 3)
        peaks.append(PeakPoint(kind="float32", instruction_set=names["float32"], gmacs=gmacs))
    gmacs = round(measured_int8_peak(job.threads), 3)
    peaks.append(PeakPoint(kind="int8", instruction_set=names["int8"], gmacs=gmacs))
    return RooflineResult(
        bandwidth=measured_curve(job.sizes, job.threads, job.caches), peaks=peaks, narrower=narrower_levels()
    )


if __name__ == "__main__":
    sys.exit(main())
