"""The multiply-add peak: how many float32 fma this machine does when nothing is read and nothing waits."""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils

from cplab.jit import intrinsic, jit
from cplab.kernels import vectors as v
from cplab.kernels.rows import float_shapes

#: Turns of the loop in one timed call: a few milliseconds.
_TURNS = 1_000_000


@intrinsic
def _chains(typingctx: Any, turns: Any) -> Any:
    """As many independent chains of fma as the widest tile has accumulators, ``turns`` long; their sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        count = _chain_count(builder)
        slots = [cgutils.alloca_once_value(builder, v.splat(float(index))) for index in range(count)]
        factor = v.spread(builder, builder.sitofp(args[0], v.FLOAT))
        with v.counted(builder, args[0]):
            for slot in slots:
                builder.store(v.fma(builder, builder.load(slot), factor, factor), slot)
        total = builder.load(slots[0])
        for slot in slots[1:]:
            total = builder.fadd(total, builder.load(slot))
        return builder.extract_element(total, ir.Constant(v.I32, 0))

    return types.float32(types.int64), generate


@intrinsic
def _chain_width(typingctx: Any) -> Any:
    """Multiply-adds in a turn of `_chains`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(v.I64, _chain_count(builder) * v.LANES)

    return types.int64(), generate


def _chain_count(builder: Any) -> int:
    return max(tokens * rows for tokens, rows in float_shapes(builder, v.F32_CODE))


@jit(parallel=True)
def _peak_together(team: int, turns: int) -> float:
    totals = np.zeros(team, np.float32)
    for m in prange(team):
        totals[m] = _chains(turns)
    return totals.sum()


@jit()
def _peak_alone(turns: int) -> float:
    return _chains(turns)


@jit()
def _width() -> int:
    return _chain_width()


def measured_peak(threads: int, repeats: int = 5) -> float:
    """Multiply-adds a second, in thousands of millions, of a team: the best of some repeats."""
    before = numba.get_num_threads()
    best = float("inf")
    if threads > 1:
        numba.set_num_threads(threads)
    for _ in range(repeats + 1):  # the first call may compile
        started = time.perf_counter_ns()
        if threads > 1:
            _peak_together(threads, _TURNS)
        else:
            _peak_alone(_TURNS)
        best = min(best, time.perf_counter_ns() - started)
    numba.set_num_threads(before)
    return threads * _TURNS * _width() / best
