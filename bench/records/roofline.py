"""What the machine can do at most: read bandwidth by working-set size and multiply-add peaks, ``roofline.json``.

The roofline is Williams, Waterman and Patterson's (CACM 52/4, 2009): an implementation that does I floating-point
operations for every byte that it reads reaches at most ``min(peak, bandwidth x I)``. Bandwidth is not one number but
falls from cache to memory, so that it is taken at the size that a pass goes over again and again.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from bench.records.files import read_if_there
from bench.records.measured import Frozen
from bench.records.summarised import CellSummary
from cplab.formats import FORMATS, STORED

ROOFLINE_SCHEMA = "cplab.roofline/1"
ROOFLINE_FILE = "roofline.json"

Level = Literal["l2", "cache", "memory"]
#: Timers and clocks are not perfect: what lies less above its roof lies on it.
ABOVE = 1.02


class BandwidthPoint(Frozen):
    """Reading one buffer again and again with a team.

    Attributes:
        bytes: size of the buffer, all members' shares together.
        gbps: the median of the best configuration.
        best_gbps: the fastest single reading of any configuration.
        rows: rows read at once in the best configuration.
        prefetch_bytes: how far ahead it prefetched.
        level: where a buffer of this size lies: ``l2`` where every member's share fits its own, ``cache`` where the
            whole fits the last level, ``memory`` from twice that on; None in between, or where caches are not told.
    """

    bytes: int
    gbps: float
    best_gbps: float
    rows: int
    prefetch_bytes: int
    level: Level | None = None


class PeakPoint(Frozen):
    """Multiply-adds a second, in thousands of millions, when nothing is read and nothing waits.

    ``kind`` is float32 (fma) or int8 (sums of products of bytes), ``instruction_set`` the name of the code.
    """

    kind: Literal["float32", "int8"]
    instruction_set: str
    gmacs: float


class TeamRoof(Frozen):
    """Roofs of one thread count: the curve ascending by size, and the peaks, the CPU's own instruction set first."""

    threads: int
    cpus: list[int] | None = None
    bandwidth: list[BandwidthPoint] = Field(default_factory=list)
    peaks: list[PeakPoint] = Field(default_factory=list)
    reason: str = ""

    def gbps_at(self, size_bytes: float) -> float | None:
        """Bandwidth for a working set, between measured sizes along the logarithm; the last size's beyond it.

        Every single reading was possible, so that the roof is the fastest of them.
        """
        curve = self.bandwidth
        if not curve:
            return None
        if size_bytes <= curve[0].bytes:
            return curve[0].best_gbps
        for low, high in pairwise(curve):
            if size_bytes <= high.bytes:
                share = math.log(size_bytes / low.bytes) / math.log(high.bytes / low.bytes)
                return low.best_gbps + share * (high.best_gbps - low.best_gbps)
        return curve[-1].best_gbps

    def gmacs(self, kind: Literal["float32", "int8"]) -> float | None:
        """The highest peak of a kind, over instruction sets."""
        return max((peak.gmacs for peak in self.peaks if peak.kind == kind), default=None)

    def best_gbps(self, level: Level) -> float | None:
        """The fastest reading of a level."""
        return max((point.best_gbps for point in self.bandwidth if point.level == level), default=None)


class Roofline(Frozen):
    """``roofline.json``: one entry for each thread count."""

    schema_: str = Field(default=ROOFLINE_SCHEMA, alias="schema")
    measured_utc: str
    elapsed_s: float
    teams: list[TeamRoof]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def team(self, threads: int) -> TeamRoof | None:
        """The roofs of a thread count."""
        return next((team for team in self.teams if team.threads == threads), None)


class RooflinePoint(Frozen):
    """A cell in the plot: floating-point operations for each byte read, what it reaches, and what it could at most.

    ``share`` is what it reaches of ``roof_gflops``, ``bound`` which roof is the lower one at its intensity.
    """

    variant: str
    threads: int
    flop_per_byte: float
    gflops: float
    roof_gflops: float
    share: float
    bound: Literal["bandwidth", "arithmetic"]

    @property
    def above(self) -> bool:
        """Faster than the machine: the roof or the cell was measured wrong."""
        return self.share > ABOVE


def point_of(cell: CellSummary, roofline: Roofline) -> RooflinePoint | None:
    """Where a cell stands, or None where it has no time, does not tell its work, or its team has no roof.

    A multiply-add counts as two operations, of whichever arithmetic. Weights in blocks of integers are multiplied as
    bytes, under the int8 peak.
    """
    team = roofline.team(cell.threads)
    if team is None or cell.cp_ms is None or not cell.macs_per_frame or not cell.bytes_per_frame:
        return None
    own = FORMATS.get(cell.arithmetic)
    in_blocks = cell.arithmetic == STORED or (own is not None and own.blocks is not None)
    kind: Literal["float32", "int8"] = "int8" if in_blocks else "float32"
    gbps = team.gbps_at(cell.bytes_per_frame / (cell.passes_per_frame or 1))
    gmacs = team.gmacs(kind)
    if gbps is None or gmacs is None:
        return None
    intensity = 2 * cell.macs_per_frame / cell.bytes_per_frame
    reached = 2 * cell.macs_per_frame / cell.cp_ms.p50 / 1e6
    slope, flat = gbps * intensity, 2 * gmacs
    return RooflinePoint(
        variant=cell.variant,
        threads=cell.threads,
        flop_per_byte=intensity,
        gflops=reached,
        roof_gflops=min(slope, flat),
        share=reached / min(slope, flat),
        bound="bandwidth" if slope <= flat else "arithmetic",
    )


def read_roofline(path: Path) -> Roofline | None:
    """Read a ``roofline.json``; None where there is none, as in folders of older versions.

    Raises:
        UnreadableRecordError: it cannot be read, or has a schema that this version does not know.
    """
    return read_if_there(path, Roofline, ROOFLINE_SCHEMA)
