"""Read bandwidth by working-set size: one buffer read again and again, from what an L2 holds to what only memory does.

The lab's own reading kernel does the reading (`cplab.kernels.reading`), with the split over the team that matrices
have, on the kind of pages that weights lie on, touched first by the thread that packs weights. Every size is tried
with several prefetch distances and row counts in turn; the best of them counts.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bench.records.roofline import BandwidthPoint, Level

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: (rows at once, prefetch distance): the reading kernel's own for memory, and near ones for caches.
CACHE_CONFIGURATIONS = ((4, 0), (8, 2048))
_ROW_BYTES, _UNIT_ROWS = 2048, 16
#: Bytes that each member reads in one timed call, at least; a timer's tick and a launch are nothing beside it.
_LEAST_BYTES = 32 << 20
_REPEATS, _PATIENCE_S = 5, 1.5
_SMALLEST, _LARGEST = 256 << 10, 1 << 30
#: A working set this much smaller than a cache stays in it, and one this much larger than the last is memory's.
_FITS, _BEYOND = 0.75, 2.0


def curve_sizes(caches: Mapping[str, Any] | None, threads: int, available_bytes: int | None) -> list[int]:
    """Sizes of a team's working set, ascending: doubling from half an L2 to at least twice the last cache.

    Args:
        caches: as `bench.cpu_model.caches` tells them; None: up to 256 MiB.
        threads: of the team; sizes are whole units of 16 rows for each member.
        available_bytes: a quarter of it is used at most.
    """
    known = _telling(caches)
    start = int(known.get("l2", {}).get("bytes", 2 * _SMALLEST)) // 2
    last = _all_of(known[max(known)]) if known else 128 << 20
    most = min(_LARGEST, (available_bytes or 4 * _LARGEST) // 4)
    unit = _ROW_BYTES * _UNIT_ROWS * threads
    sizes = []
    wanted = max(start, unit)
    while wanted <= most:
        sizes.append(wanted // unit * unit)
        if wanted >= max(_BEYOND * last, 64 << 20):
            break
        wanted *= 2
    return sizes


def level_of(size: int, caches: Mapping[str, Any] | None, threads: int) -> Level | None:
    """Which cache holds a team's working set; None where that is not sure."""
    caches = _telling(caches)
    if not caches:
        return None
    last = max(caches)
    if size >= _BEYOND * _all_of(caches[last]):
        return "memory"
    l2 = caches.get("l2")
    if l2 and last != "l2" and size <= _FITS * int(l2["bytes"]) * min(threads, int(l2.get("instances", 1))):
        return "l2"
    # Of several last-level caches a small team reaches one for certain.
    return "cache" if size <= _FITS * int(caches[last]["bytes"]) else None


def _telling(caches: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The caches, or none where all that is told is the first level: then the rest is hidden, not absent."""
    return caches if caches and max(caches) > "l1d" else {}


def _all_of(cache: Mapping[str, Any]) -> int:
    return int(cache.get("total_bytes", cache["bytes"]))


def measured_curve(sizes: list[int], threads: int, caches: Mapping[str, Any] | None) -> list[BandwidthPoint]:
    """Measure; some seconds. ``sizes`` as from `curve_sizes`.

    Raises:
        MemoryError: the largest size cannot be had.
    """
    import numpy as np

    from cplab.streamed_weights import huge_block

    if not sizes:
        return []
    block, address = huge_block(max(sizes))
    block[:] = np.arange(len(block), dtype=np.uint8)  # real pages: untouched ones are all the same page of zeros
    return [_measured(address, size, threads, level_of(size, caches, threads)) for size in sizes]


def _measured(address: int, size: int, threads: int, level: Level | None) -> BandwidthPoint:
    from cplab.kernels import reading

    table = _table(address, size, threads)
    total = int((table[:, 1] * table[:, 2]).sum())
    configurations = (*reading.CONFIGURATIONS, *CACHE_CONFIGURATIONS)
    times: dict[tuple[int, int], list[int]] = {configuration: [] for configuration in configurations}
    began = time.monotonic()
    for turn in range(_REPEATS + 1):  # the first finds the caches as another left them
        if turn > 1 and time.monotonic() - began > _PATIENCE_S:
            break  # a busy machine: seconds, not minutes
        for rows, ahead in configurations:
            ns = reading.time_read(table, threads, rows, ahead)
            if turn:
                times[rows, ahead].append(ns)
    best = min(configurations, key=lambda configuration: statistics.median(times[configuration]))
    return BandwidthPoint(
        bytes=size,
        gbps=round(total / statistics.median(times[best]), 3),
        best_gbps=round(total / min(min(found) for found in times.values()), 3),
        rows=best[0],
        prefetch_bytes=best[1],
        level=level,
    )


def _table(address: int, size: int, threads: int) -> NDArray[np.int64]:
    """The buffer as one matrix, as often as makes a call worth timing."""
    from cplab.kernels.reading import stream_table
    from cplab.variant import WeightStream

    again = max(1, math.ceil(_LEAST_BYTES * threads / size))
    return stream_table([WeightStream(address, size // _ROW_BYTES, _ROW_BYTES)] * again)
