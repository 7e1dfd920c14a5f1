"""The int8 peak: how many products of bytes this machine sums when nothing waits, by the instruction that kernels use.

Weights stay in registers and every step takes other activations from a few cache lines in L1, as in a kernel that has
many rows for a token: were both the same in every turn, the compiler would take the products out of the loop.
"""

from __future__ import annotations

import time
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils

from cplab.jit import intrinsic, jit
from cplab.kernels import int_products
from cplab.kernels import vectors as v
from cplab.kernels.tiles import register_vectors

#: Turns of the loop in one timed call, a few milliseconds; lines of activations that they go round in.
_TURNS, _LINES = 400_000, 16


def _chain_count(builder: Any) -> int:
    """Independent sums: enough to hide the latency of what is added, few enough to stay in registers with all else.

    An instruction that multiplies and adds takes some cycles; a plain addition takes one, but needs the weights twice.
    """
    registers = register_vectors(builder)
    if int_products.has_vnni(builder):
        return 12 if registers == 32 else 6
    if v.is_arm64(builder):
        return 4
    return {32: 2, 8: 2, 4: 1}[registers]


@intrinsic
def _dot_chains(typingctx: Any, address: Any, turns: Any) -> Any:
    """As many chains of sums of products as there are registers for, ``turns`` long; all of them added."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return emit_chains(builder, *args)

    return types.int64(types.int64, types.int64), generate


def emit_chains(builder: Any, address: Any, turns: Any) -> Any:
    """Emit the chains over ``_LINES`` lines of 64 bytes at an address; the int64 sum of all their lanes."""
    count = _chain_count(builder)
    lines = [v.load(builder, builder.add(address, v.i64(64 * k)), int_products.BYTES, 1) for k in range(count)]
    weights = [int_products.signed(builder, line) for line in lines]
    slots = [cgutils.alloca_once_value(builder, v.splat_int(0)) for _ in range(count)]
    with v.counted(builder, turns) as turn:
        offset = builder.shl(builder.and_(turn, v.i64(_LINES - 1)), v.i64(6))
        x = v.load(builder, builder.add(address, offset), int_products.BYTES, 1)
        for slot, w in zip(slots, weights, strict=True):
            builder.store(int_products.added(builder, builder.load(slot), w, x), slot)
    total = builder.load(slots[0])
    for slot in slots[1:]:
        total = builder.add(total, builder.load(slot))
    first = builder.extract_element(total, ir.Constant(v.I32, 0))
    for lane in range(1, v.LANES):
        first = builder.add(first, builder.extract_element(total, ir.Constant(v.I32, lane)))
    return builder.sext(first, v.I64)


@intrinsic
def _dot_width(typingctx: Any) -> Any:
    """Products of bytes in a turn of `_dot_chains`."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(v.I64, _chain_count(builder) * 64)

    return types.int64(), generate


@jit(parallel=True)
def _together(address: int, team: int, turns: int) -> int:
    totals = np.zeros(team, np.int64)
    for m in prange(team):
        totals[m] = _dot_chains(address, turns)
    return totals.sum()


@jit()
def _alone(address: int, turns: int) -> int:
    return _dot_chains(address, turns)


@jit()
def _width() -> int:
    return _dot_width()


def measured_int8_peak(threads: int, repeats: int = 5) -> float:
    """Products of bytes a second, in thousands of millions, of a team: the best of some repeats."""
    before = numba.get_num_threads()
    best = float("inf")
    data = np.arange(64 * _LINES, dtype=np.int8)
    if threads > 1:
        numba.set_num_threads(threads)
    for _ in range(repeats + 1):  # the first call may compile
        started = time.perf_counter_ns()
        if threads > 1:
            _together(data.ctypes.data, threads, _TURNS)
        else:
            _alone(data.ctypes.data, _TURNS)
        best = min(best, time.perf_counter_ns() - started)
    numba.set_num_threads(before)
    return threads * _TURNS * _width() / best
