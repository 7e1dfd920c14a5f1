"""Rows x tokens in float formats: ``y[r, t] = dot(W[r], x[t])``, one source for all of them.

Activations lie in *panels*: ``[n / 16][T][16]`` float32, so that 16 consecutive elements of one token are one vector
and the tokens of a pass stand side by side. A tile decodes each 16 weights once for all its tokens, and prefetches the
weight stream some KiB ahead: with only a few instructions a cache line, the hardware prefetcher alone leaves much of
the memory bandwidth unused.
"""

from __future__ import annotations

from typing import Any

from cplab.jit import target_cpu
from cplab.kernels import vectors as v
from cplab.kernels.tiles import Shapes, Tile, Unit, emit_unit, register_vectors

#: Columns of a step: two vectors.
_STEP = 2 * v.LANES

#: CPUs, by LLVM's names, on which a pass over one token was measured to read faster one row after another than four at
#: once. With several tokens products are what takes time, and a lone row's wait for each other.
_ROW_BY_ROW = ("znver5",)
#: The tile of such a pass there.
_IN_TURN: Shapes = ((1, 1),)


def float_shapes(builder: Any, code: int) -> Shapes:
    """The tiles of a float format on the target; decoding two bytes takes registers that float32 leaves."""
    return {
        32: ((8, 2), (4, 4), (2, 4), (1, 4)),
        8: ((4, 1), (2, 2), (1, 4 if code == v.F32_CODE else 2)),
        4: ((2, 1), (1, 2)),
    }[register_vectors(builder)]


def alone_shapes() -> Shapes:
    """The tile of a pass over one token, where it has one of its own."""
    return _IN_TURN if target_cpu()[0] in _ROW_BY_ROW else ()


def emit_float_unit(builder: Any, code: int, unit: Unit) -> None:
    """Emit 16 rows of a float format times all tokens of a panel."""

    def steps(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_steps(builder, code, unit, tile, first, last)

    def emit(shapes: Shapes) -> None:
        count = builder.lshr(unit.n, v.i64(5))
        step_bytes = (2 * v.BYTES_PER_16[code], 4 * _STEP)
        emit_unit(builder, unit, shapes, count, step_bytes, list(range(v.LANES)), steps)

    alone = alone_shapes()
    if not alone:
        emit(float_shapes(builder, code))
        return
    with builder.if_else(builder.icmp_signed("==", unit.T, v.i64(1))) as (one, more):
        with one:
            emit(alone)
        with more:
            emit(float_shapes(builder, code))


def _emit_steps(builder: Any, code: int, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, in ascending order for every lane."""
    size = 2 * v.BYTES_PER_16[code]
    block_bytes = builder.shl(unit.T, v.i64(6))
    rows = [builder.add(unit.w, builder.mul(unit.row_bytes, tile.row_at(builder, r))) for r in range(tile.rows)]
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    with v.counted(builder, last, start=first) as step:
        block = builder.add(x, builder.mul(builder.shl(step, v.i64(1)), block_bytes))
        at = [builder.add(row, builder.mul(step, v.i64(size))) for row in rows]
        for address in at:
            for line in range(0, size, v.CACHE_LINE):
                v.prefetch(builder, builder.add(address, builder.add(tile.ahead, v.i64(line))))
        # Where one token is all there is, a row is finished before the next is decoded; more tokens share a row's
        # weights, and rows a token's activations.
        groups = [[r] for r in range(tile.rows)] if tile.tokens == 1 else [list(range(tile.rows))]
        for group in groups:
            emit_products(builder, code, tile, [(r, at[r]) for r in group], block, block_bytes)


def emit_products(
    builder: Any, code: int, tile: Tile, rows: list[tuple[int, Any]], block: Any, block_bytes: Any
) -> None:
    """Products of 32 weights of some rows with all tokens of the tile."""
    for half in range(2):
        weights = [(r, v.decode_half(builder, code, address, half)) for r, address in rows]
        for t in range(tile.tokens):
            activation = v.load(builder, builder.add(block, v.i64(t * v.CACHE_LINE)))
            for r, weight in weights:
                tile.accumulate(builder, r, t, weight, activation)
        block = builder.add(block, block_bytes)
