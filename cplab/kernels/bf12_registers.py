"""Packed BF16 decoded, mended and multiplied in registers: AVX-512.

The codes of a step say which of its weights are exceptions, a mask of 64 bits. With VBMI2 the next bytes of the row's
list are spread over the lanes of that mask (vpexpandb), and the list goes on by as many as the mask has bits: no
branch, whatever the weights, and nothing that the next step waits for but an addition. Without it the exceptions of a
step are put in one by one; most steps have none.

What it costs (counted in the assembly): a row's 64 weights take 16 instructions of the two ports that vectors of 64
bytes have, eight of them for the products of plain BF16. So where eight cycles are less than memory takes for 96 bytes,
packed rows are read at memory's speed; where weights come out of a near cache, plain BF16 is faster.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cplab.formats import bf12
from cplab.jit import has_feature
from cplab.kernels import bf12_decoding as decoding
from cplab.kernels import vectors as v
from cplab.kernels.bf12_reading import Packed, Rows, ask_for_head, start_of, uppers_at
from cplab.kernels.tiles import UNIT, Tile, Unit, register_vectors

_MASK = ir.VectorType(ir.IntType(1), bf12.STEP)
#: Blocks of 16 weights in half a step: one vector of words.
_BLOCKS = 2


def fits(builder: Any) -> bool:
    """Whether the target decodes in registers."""
    return register_vectors(builder) == 32 and has_feature("avx512bw")


def positions(builder: Any) -> Any:
    """Stack space for how far each row's list of exceptions has been read, from a chunk to the next; its address."""
    with builder.goto_entry_block():
        room = builder.alloca(v.I64, UNIT, name="positions")
    return builder.ptrtoint(room, v.I64)


def emit_steps(builder: Any, unit: Unit, tile: Tile, packed: Packed, positions: Any, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, in ascending order for every lane."""
    ask_for_head(builder, unit, tile, packed, first)
    rows = Rows(builder, unit, tile, packed, tile.row)
    lists = [_Exceptions(builder, unit, positions, rows.index(r), first) for r in range(tile.rows)]
    end = builder.select(builder.icmp_signed("<", last, packed.whole), last, packed.whole)
    with v.counted(builder, end, start=first) as step:
        _emit_step(builder, unit, tile, rows, lists, step, 2)
    with builder.if_then(builder.icmp_signed(">", last, packed.whole)):  # n ends within its last step
        _emit_step(builder, unit, tile, rows, lists, packed.whole, 1)
    for exceptions in lists:
        exceptions.keep(builder)


class _Exceptions:
    """A row's list of upper bytes, from where the chunk before left it."""

    def __init__(self, builder: Any, unit: Unit, positions: Any, row: Any, first: Any) -> None:
        self._kept = builder.add(positions, builder.shl(row, v.i64(3)))
        begin = builder.add(uppers_at(builder, unit), start_of(builder, unit, row))
        is_first = builder.icmp_signed("==", first, v.i64(0))
        here = builder.select(is_first, begin, v.load(builder, self._kept, v.I64, align=8))
        self._next = cgutils.alloca_once_value(builder, here)

    def keep(self, builder: Any) -> None:
        """For the next chunk."""
        v.store(builder, builder.load(self._next), self._kept, align=8)

    def mended(self, builder: Any, upper: Any, is_exception: Any) -> Any:
        """A step's upper bytes with the next of the list where exceptions are."""
        if has_feature("avx512vbmi2"):
            return self._spread(builder, upper, is_exception)
        return self._one_by_one(builder, upper, is_exception)

    def _spread(self, builder: Any, upper: Any, is_exception: Any) -> Any:
        kind = ir.FunctionType(decoding.BYTES, [decoding.BYTES, decoding.BYTES, _MASK])
        expand = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.mask.expand.v64i8")
        here = builder.load(self._next)
        following = v.load(
            builder, here, decoding.BYTES, align=1
        )  # past the last one there are rows, never read so far
        count = builder.ctpop(builder.bitcast(is_exception, v.I64))
        builder.store(builder.add(here, count), self._next)
        return builder.call(expand, [following, upper, is_exception])

    def _one_by_one(self, builder: Any, upper: Any, is_exception: Any) -> Any:
        bits = builder.bitcast(is_exception, v.I64)
        left, mended = (cgutils.alloca_once_value(builder, value) for value in (bits, upper))
        with v.repeated(builder, lambda: builder.icmp_unsigned("!=", builder.load(left), v.i64(0))):
            others = builder.load(left)
            lowest = builder.and_(others, builder.neg(others))
            here = builder.load(self._next)
            byte = v.spread(builder, v.load(builder, here, v.I8, align=1), bf12.STEP)
            builder.store(builder.select(builder.bitcast(lowest, _MASK), byte, builder.load(mended)), mended)
            builder.store(builder.xor(others, lowest), left)
            builder.store(builder.add(here, v.i64(1)), self._next)
        return builder.load(mended)


def _emit_step(
    builder: Any, unit: Unit, tile: Tile, rows: Rows, lists: list[_Exceptions], step: Any, halves: int
) -> None:
    """Products of a step, or of its first half, of the tile's rows with its tokens."""
    for half in range(halves):
        rows.ask(builder, tile.ahead, builder.add(builder.shl(step, v.i64(1)), v.i64(half)))
    block_bytes = builder.shl(unit.T, v.i64(6))
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    x = builder.add(x, builder.mul(builder.shl(step, v.i64(2)), block_bytes))

    def words(r: int) -> list[Any]:
        at = rows.step_at(builder, r, step)
        upper, is_exception = decoding.looked_up_at_once(builder, at, rows.tables[r])
        upper = lists[r].mended(builder, upper, is_exception)
        return decoding.interleaved(builder, decoding.load_lower(builder, at), upper)

    # Where one token is all there is, a row is finished before the next is decoded; more tokens share a row's weights,
    # and rows a token's activations.
    groups = [[r] for r in range(tile.rows)] if tile.tokens == 1 else [list(range(tile.rows))]
    for group in groups:
        decoded = {r: words(r) for r in group}
        block = x
        for half in range(halves):
            for part in range(_BLOCKS):
                weights = {
                    r: v.half_of_bf16(builder, builder.bitcast(of_row[half], v.INTS), part)
                    for r, of_row in decoded.items()
                }
                for t in range(tile.tokens):
                    activation = v.load(builder, builder.add(block, v.i64(t * v.CACHE_LINE)))
                    for r, weight in weights.items():
                        tile.accumulate(builder, r, t, weight, activation)
                block = builder.add(block, block_bytes)
