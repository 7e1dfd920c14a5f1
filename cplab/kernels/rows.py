"""Rows x tokens in float formats: ``y[r, t] = dot(W[r], x[t])``, one source for all of them.

Activations lie in *panels*: ``[n / 16][T][16]`` float32, so that 16 consecutive elements of one token are one vector
and the tokens of a pass stand side by side. A tile decodes each 16 weights once for all its tokens, and prefetches the
weight stream some KiB ahead: with only a few instructions a cache line, the hardware prefetcher alone leaves much of
the memory bandwidth unused. Four rows ride together where there is one token, so the distance that helps is what
those four take: nearer lines are being read already.
"""

from __future__ import annotations

from typing import Any

from cplab.kernels import vectors as v
from cplab.kernels.tiles import Tile, Unit, emit_unit

#: Columns of a step: two vectors.
_STEP = 2 * v.LANES


def emit_float_unit(builder: Any, code: int, unit: Unit) -> None:
    """Emit 16 rows of a float format times all tokens of a panel."""

    def steps(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_steps(builder, code, unit, tile, first, last)

    count = builder.lshr(unit.n, v.i64(5))
    emit_unit(builder, unit, count, 4 * _STEP, list(range(v.LANES)), steps)


def _emit_steps(builder: Any, code: int, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, in ascending order for every lane."""
    size = v.BYTES_PER_16[code]
    block_bytes = builder.shl(unit.T, v.i64(6))
    rows = [builder.add(unit.w, builder.mul(unit.row_bytes, builder.add(tile.row, v.i64(r)))) for r in range(tile.rows)]
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    with v.counted(builder, last, start=first) as step:
        offset = builder.mul(step, v.i64(2 * size))
        block = builder.add(x, builder.mul(builder.shl(step, v.i64(1)), block_bytes))
        at = [builder.add(row, offset) for row in rows]
        for address in at:
            for line in range(0, 2 * size, v.CACHE_LINE):
                v.prefetch(builder, builder.add(address, builder.add(unit.ahead, v.i64(line))))
        pairs = [v.decode_32(builder, code, address) for address in at]
        for half in range(2):
            for t in range(tile.tokens):
                activation = v.load(builder, builder.add(block, v.i64(t * v.CACHE_LINE)))
                for r in range(tile.rows):
                    tile.accumulate(builder, r, t, pairs[r][half], activation)
            block = builder.add(block, block_bytes)
