"""Rows x tokens: ``y[r, t] = dot(W[r], x[t])`` for 16 rows and any number of tokens, one source for all float formats.

Activations lie in *panels*: ``[n / 16][T][16]`` float32, so that 16 consecutive elements of one token are one vector
and the tokens of a pass stand side by side. A tile of R rows and N tokens keeps R x N accumulators in registers, one
for each dot product (the canonical order allows one only), decodes each 16 weights once for all its tokens, and
prefetches the weight stream some KiB ahead: with only a few instructions a cache line, the hardware prefetcher alone
leaves much of the memory bandwidth unused. Four rows ride together, so the distance that helps is what those four
take: nearer lines are being read already.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from cplab.jit import entry, intrinsic
from cplab.kernels import vectors as v

#: Rows of a unit: the grain in which matrices are split over threads. 16 rows of one token are one cache line of y.
UNIT = v.LANES

#: Tokens of a tile -> rows held at once. Up to 16 accumulators leave registers for weights and activations.
_ROWS_AT_ONCE = {1: 4, 2: 4, 4: 4, 8: 2}


@intrinsic(prefer_literal=True)
def unit_tile(
    typingctx: Any,
    tokens: Any,
    code: Any,
    w: Any,
    row_bytes: Any,
    n: Any,
    x: Any,
    T: Any,
    y: Any,
    y_token: Any,
    ahead: Any,
) -> Any:
    """``y[r, t] = dot(W[r], x[t])`` for the 16 rows of a unit and a literal number of tokens.

    Args:
        typingctx: numba's.
        tokens: tokens of the tile: 1, 2, 4 or 8 (literal).
        code: format code; an unknown one does nothing.
        w: address of row 0; row r starts at ``w + r * row_bytes``.
        row_bytes: bytes from a row to the next.
        n: columns, a multiple of 32.
        x: address of the tile's first token in its panel.
        T: tokens in the panel: a token's blocks are ``T * 64`` bytes apart.
        y: address of row 0 of the tile's first token; rows are 4 bytes apart.
        y_token: bytes from a token to the next in y.
        ahead: prefetch distance, bytes.
    """
    N = tokens.literal_value
    R = _ROWS_AT_ONCE[N]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, code, w, row_bytes, n, x, T, y, y_token, ahead = args
        with v.counted(builder, v.i64(UNIT // R)) as group:
            first = builder.mul(group, v.i64(R))
            row = builder.add(w, builder.mul(row_bytes, first))
            out = builder.add(y, builder.shl(first, v.i64(2)))
            done = builder.append_basic_block("done")
            choice = builder.switch(code, done)
            for known in v.BYTES_PER_16:
                block = builder.append_basic_block(f"format{known}")
                choice.add_case(ir.Constant(v.I64, known), block)
                builder.position_at_end(block)
                _emit_rows(builder, (known, R, N), row, row_bytes, n, x, T, out, y_token, ahead)
                builder.branch(done)
            builder.position_at_end(done)
        return context.get_dummy_value()

    return types.none(tokens, *([types.int64] * 9)), generate


def _emit_rows(
    builder: Any,
    shape: tuple[int, int, int],
    w: Any,
    row_bytes: Any,
    n: Any,
    x: Any,
    T: Any,
    y: Any,
    y_token: Any,
    ahead: Any,
) -> None:
    code, R, N = shape
    step_bytes = v.BYTES_PER_16[code]
    with builder.goto_entry_block():
        accumulators = [[cgutils.alloca_once(builder, v.VECTOR) for _ in range(N)] for _ in range(R)]
    for r in range(R):
        for t in range(N):
            builder.store(v.splat(0.0), accumulators[r][t])
    row_at = [builder.add(w, builder.mul(row_bytes, v.i64(r))) for r in range(R)]
    block_bytes = builder.shl(T, v.i64(6))
    with v.counted(builder, builder.lshr(n, v.i64(5))) as pair:
        offset = builder.mul(pair, v.i64(2 * step_bytes))
        x_block = builder.add(x, builder.mul(builder.shl(pair, v.i64(1)), block_bytes))
        for half in range(2):
            weights = []
            for r in range(R):
                at = builder.add(row_at[r], builder.add(offset, v.i64(half * step_bytes)))
                weights.append(v.decode_16(builder, code, at))
                if (half * step_bytes) % v.CACHE_LINE == 0:
                    v.prefetch(builder, builder.add(at, ahead))
            for t in range(N):
                activation = v.load(builder, builder.add(x_block, v.i64(t * v.CACHE_LINE)))
                for r in range(R):
                    acc = accumulators[r][t]
                    builder.store(v.fma(builder, weights[r], activation, builder.load(acc)), acc)
            x_block = builder.add(x_block, block_bytes)
    for r in range(R):
        for t in range(N):
            at = builder.add(y, builder.add(v.i64(4 * r), builder.mul(y_token, v.i64(t))))
            v.store(builder, v.tree_sum(builder, builder.load(accumulators[r][t])), at)


@entry(types.void(*([types.int64] * 9)))
def unit(code: int, w: int, row_bytes: int, n: int, x: int, T: int, y: int, y_token: int, ahead: int) -> None:
    """16 rows x all T tokens of a panel, in tiles of 8, 4, 2 and 1 tokens; the arguments are `unit_tile`'s."""
    t = 0
    while T - t >= 8:
        unit_tile(8, code, w, row_bytes, n, x + t * 64, T, y + t * y_token, y_token, ahead)
        t += 8
    if T - t >= 4:
        unit_tile(4, code, w, row_bytes, n, x + t * 64, T, y + t * y_token, y_token, ahead)
        t += 4
    if T - t >= 2:
        unit_tile(2, code, w, row_bytes, n, x + t * 64, T, y + t * y_token, y_token, ahead)
        t += 2
    if T - t >= 1:
        unit_tile(1, code, w, row_bytes, n, x + t * 64, T, y + t * y_token, y_token, ahead)
