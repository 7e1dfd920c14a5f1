"""A kernel that only reads: how fast this machine can stream a cell's own packed matrices. That is the cell's roof.

It walks the same buffers in the same order with the same split over threads as the real kernels, and does the least
that keeps the reads from being thrown away: one xor for 64 bytes. Rows that are read at once lie as far apart as a unit
of 16 lets them (`cplab.kernels.tiles` says why). How many they are and how far ahead is prefetched are arguments,
because the best of them differs from machine to machine; the roof is the best of several.
"""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numpy.typing import NDArray

from cplab.jit import intrinsic, jit
from cplab.kernels import vectors as v
from cplab.kernels.tiles import UNIT
from cplab.variant import WeightStream

#: Bytes of a row where a matrix is read without regard to its own rows.
_CUT = 1024
#: (rows at once, prefetch distance in bytes) that are tried.
CONFIGURATIONS = ((8, 32768), (2, 32768), (4, 16384), (4, 32768), (1, 8192))


@intrinsic(prefer_literal=True)
def _xor_rows(typingctx: Any, rows: Any, address: Any, row_bytes: Any, ahead: Any) -> Any:
    """Xor of all 64-byte lines of ``rows`` (literal) rows of a unit, folded to an int64."""
    R = rows.literal_value

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, address, row_bytes, ahead = args
        zero = ir.Constant(v.INTS, [0] * v.LANES)
        accumulators = [cgutils.alloca_once(builder, v.INTS) for _ in range(R)]
        for accumulator in accumulators:
            builder.store(zero, accumulator)
        starts = [builder.add(address, builder.mul(row_bytes, v.i64(r * (UNIT // R)))) for r in range(R)]
        with v.counted(builder, builder.lshr(row_bytes, v.i64(6))) as line:
            offset = builder.shl(line, v.i64(6))
            for start, accumulator in zip(starts, accumulators, strict=True):
                at = builder.add(start, offset)
                v.prefetch(builder, builder.add(at, ahead))
                value = v.load(builder, at, v.INTS)
                builder.store(builder.xor(value, builder.load(accumulator)), accumulator)
        total = zero
        for accumulator in accumulators:
            total = builder.xor(total, builder.load(accumulator))
        words = builder.bitcast(total, ir.VectorType(v.I64, 8))
        folded = builder.extract_element(words, ir.Constant(v.I32, 0))
        for index in range(1, 8):
            folded = builder.xor(folded, builder.extract_element(words, ir.Constant(v.I32, index)))
        return folded

    return types.int64(rows, types.int64, types.int64, types.int64), generate


@jit()
def _read_share(streams: Any, m: int, team: int, at_once: int, ahead: int) -> int:
    total = 0
    for s in range(len(streams)):
        address, rows, row_bytes = streams[s, 0], streams[s, 1], streams[s, 2]
        units = rows // UNIT
        low, high = units * m // team, units * (m + 1) // team
        for group in range(low * UNIT, high * UNIT, at_once):
            unit, first = group // UNIT, group % UNIT // at_once
            start = address + (unit * UNIT + first) * row_bytes
            if at_once == 8:
                total ^= _xor_rows(8, start, row_bytes, ahead)
            elif at_once == 4:
                total ^= _xor_rows(4, start, row_bytes, ahead)
            elif at_once == 2:
                total ^= _xor_rows(2, start, row_bytes, ahead)
            else:
                total ^= _xor_rows(1, start, row_bytes, ahead)
    return total


@jit()
def read_alone(streams: Any, at_once: int, ahead: int) -> int:
    """Read everything on the calling thread; the result is only there to be needed."""
    return _read_share(streams, 0, 1, at_once, ahead)


@jit(parallel=True)
def read_together(streams: Any, team: int, at_once: int, ahead: int) -> int:
    """Read everything, split over a team."""
    totals = np.zeros(team, np.int64)
    for m in prange(team):
        totals[m] = _read_share(streams, m, team, at_once, ahead)
    return totals.sum()


def stream_table(streams: list[WeightStream]) -> NDArray[np.int64]:
    """``[streams, 3]``: address, rows, bytes a row, for the functions above; rows in whole units of 16.

    Rows that are no whole lines are read as if they were of `_CUT` bytes, short of what is left over at the end.
    """
    usable = []
    for s in streams:
        rows, bytes_of = s.rows, s.row_bytes
        if bytes_of % 64:
            rows, bytes_of = rows * bytes_of // (16 * _CUT) * 16, _CUT
        if rows >= 16:
            usable.append((s.address, rows, bytes_of))
    return np.array(usable, np.int64).reshape(-1, 3)


def time_read(table: NDArray[np.int64], threads: int, at_once: int, ahead: int) -> int:
    """Nanoseconds that one reading of a table takes with a team of a size."""
    before = numba.get_num_threads()
    if threads > 1:
        numba.set_num_threads(threads)
    started = time.perf_counter_ns()
    if threads > 1:
        read_together(table, threads, at_once, ahead)
    else:
        read_alone(table, at_once, ahead)
    elapsed = time.perf_counter_ns() - started
    if threads > 1:
        numba.set_num_threads(before)
    return elapsed
