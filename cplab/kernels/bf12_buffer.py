"""Packed BF16 decoded into a buffer in first-level cache, where exceptions are stored over it, and products read it.

For targets with too few registers for four vectors of decoded words and their tables beside the sums.

One token: memory is what is waited for. While some rows are multiplied the next ones are decoded in the same loop
(`_emit_both`), so that memory never rests; a row is one chunk of columns then, which `bf12_units.MOST_COLUMNS` sees to.
More tokens: the first tile decodes each row whole, and all others find it there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cplab.formats import bf12
from cplab.kernels import bf12_units
from cplab.kernels import vectors as v
from cplab.kernels.bf12_decoding import decoded
from cplab.kernels.bf12_reading import Packed, Rows, ask_for_head, load_u16, places_at, uppers_at
from cplab.kernels.rows import emit_products
from cplab.kernels.tiles import UNIT, Tile, Unit

#: From a row of the buffer to the next. Where one token is all there is, two groups of rows take turns, from rows 0 and
#: `_OTHER` on: no load of one then has the lower address bits of a store to the other nearby, which some CPUs take for
#: the same address.
_ROW_BYTES = 2 * bf12_units.MOST_COLUMNS + 1024
_OTHER = 6


def reserved(builder: Any) -> Any:
    """Stack space for 16 decoded rows; its address."""
    with builder.goto_entry_block():
        room = builder.alloca(v.I8, _ROW_BYTES * UNIT, name="decoded")
        room.align = v.CACHE_LINE
    return v.opaque(builder, builder.ptrtoint(room, v.I64))  # else each access works out its place on the stack anew


def emit_steps(builder: Any, unit: Unit, tile: Tile, packed: Packed, buffer: Any, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``; a lone token's next rows are decoded meanwhile."""
    own = _place(builder, unit, tile, packed, buffer, first, last)
    if tile.tokens > 1:
        _emit_products(builder, unit, tile, packed, own, first, last)
        return
    next_row = builder.add(tile.row, v.i64(1))
    is_alone = builder.icmp_signed("==", unit.T, v.i64(1))
    is_followed = builder.and_(is_alone, builder.icmp_signed("<", next_row, v.i64(tile.apart)))
    with builder.if_else(is_followed) as (followed, last_rows):
        with followed:
            _emit_both(builder, unit, tile, packed, buffer, own, next_row)
        with last_rows:
            _emit_products(builder, unit, tile, packed, own, first, last)


def emit_first_rows(builder: Any, unit: Unit, tile: Tile, packed: Packed, buffer: Any, first: Any, last: Any) -> None:
    """Decode a tile's rows into the buffer where that is its turn.

    That is the first tile's; a lone token's rows are decoded while those before them are multiplied, but for the first.
    """
    ask_for_head(builder, unit, tile, packed, first)
    begins = builder.icmp_signed("==", builder.or_(first, tile.token), v.i64(0))
    if tile.tokens == 1:
        is_alone = builder.icmp_signed("==", unit.T, v.i64(1))
        later = builder.and_(is_alone, builder.icmp_signed(">", tile.row, v.i64(0)))
        begins = builder.and_(begins, builder.not_(later))
    with builder.if_then(begins):
        own = _place(builder, unit, tile, packed, buffer, first, last)
        rows = Rows(builder, unit, tile, packed, tile.row)
        with v.counted(builder, packed.steps) as step:
            _decode(builder, rows, own, step, range(tile.rows))
        _mend(builder, unit, packed, rows, own, tile.rows)


class _Place(NamedTuple):
    """Where in the buffer a tile's rows are: address of the first, and bytes from each to the next (emitted int64s)."""

    at: Any
    stride: Any

    def row(self, builder: Any, r: int) -> Any:
        """Address of row ``r`` of the tile."""
        return builder.add(self.at, builder.mul(self.stride, v.i64(r)))


def _place(builder: Any, unit: Unit, tile: Tile, packed: Packed, buffer: Any, first: Any, last: Any) -> _Place:
    """Where in the buffer a tile's rows are.

    Rows that some other tile or a later chunk of columns needs as well have places of their own; else two places, which
    stay in first-level cache, are enough.
    """
    is_only = builder.icmp_signed("<=", unit.T, v.i64(tile.tokens))
    is_only = builder.and_(is_only, builder.icmp_signed("==", builder.sub(last, first), packed.steps))
    in_turn = builder.mul(builder.and_(tile.row, v.i64(1)), v.i64(_OTHER))
    place = builder.select(is_only, in_turn, tile.row)
    apart = builder.select(is_only, v.i64(1), v.i64(tile.apart))
    return _Place(builder.add(buffer, builder.mul(place, v.i64(_ROW_BYTES))), builder.mul(apart, v.i64(_ROW_BYTES)))


def _decode(builder: Any, rows: Rows, out: _Place, step: Any, which: range) -> None:
    """A step of some of the rows as BF16 words in the buffer."""
    for r in which:
        at = builder.add(out.row(builder, r), builder.shl(step, v.i64(7)))
        for half, words in enumerate(decoded(builder, rows.step_at(builder, r, step), rows.tables[r])):
            v.store(builder, words, builder.add(at, v.i64(half * bf12.STEP)), align=v.CACHE_LINE)


def _mend(builder: Any, unit: Unit, packed: Packed, rows: Rows, out: _Place, count: int) -> None:
    """Store the upper bytes of exceptions over what was decoded into the buffer."""
    uppers, places = uppers_at(builder, unit), places_at(builder, unit, packed)
    for r in range(count):
        begin, end = rows.exceptions(builder, r)
        row = builder.add(out.row(builder, r), v.i64(1))
        with v.counted(builder, end, start=begin) as index:
            place = load_u16(builder, builder.add(places, builder.shl(index, v.i64(1))))
            upper = v.load(builder, builder.add(uppers, index), v.I8, align=1)
            v.store(builder, upper, builder.add(row, builder.shl(place, v.i64(1))), align=1)


def _emit_products(builder: Any, unit: Unit, tile: Tile, packed: Packed, own: _Place, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, of rows in the buffer."""
    begin, end = (builder.shl(step, v.i64(1)) for step in (first, last))
    halves = builder.lshr(unit.n, v.i64(5))
    end = builder.select(builder.icmp_signed("<", end, halves), end, halves)
    rows = Rows(builder, unit, tile, packed, tile.row)
    with v.counted(builder, end, start=begin) as half:
        rows.ask(builder, tile.ahead, half)
        _multiply(builder, unit, tile, own, half)


def _emit_both(builder: Any, unit: Unit, tile: Tile, packed: Packed, buffer: Any, own: _Place, next_row: Any) -> None:
    """Products of some rows with the only token, while those after them are decoded to the other place."""
    ends = builder.add(builder.add(buffer, buffer), v.i64(_OTHER * _ROW_BYTES))
    other = _Place(builder.sub(ends, own.at), own.stride)
    rows = Rows(builder, unit, tile, packed, next_row)
    ahead = builder.sub(tile.ahead, packed.row_bytes)  # the rows that are decoded are one further than the tile's
    with v.counted(builder, packed.whole) as step:
        for part in range(2):  # in turn, so that neither has all registers at once
            half = builder.add(builder.shl(step, v.i64(1)), v.i64(part))
            rows.ask(builder, ahead, half)
            _decode(builder, rows, other, step, range(part * tile.rows // 2, (part + 1) * tile.rows // 2))
            _multiply(builder, unit, tile, own, half)
    with builder.if_then(builder.icmp_signed("<", packed.whole, packed.steps)):  # n ends within its last step
        _decode(builder, rows, other, packed.whole, range(tile.rows))
        _multiply(builder, unit, tile, own, builder.shl(packed.whole, v.i64(1)))
    _mend(builder, unit, packed, rows, other, tile.rows)


def _multiply(builder: Any, unit: Unit, tile: Tile, own: _Place, half: Any) -> None:
    """Products of 32 decoded weights of the tile's rows with its tokens."""
    block_bytes = builder.shl(unit.T, v.i64(6))
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    block = builder.add(x, builder.mul(builder.shl(half, v.i64(1)), block_bytes))
    rows = [(r, builder.add(own.row(builder, r), builder.shl(half, v.i64(6)))) for r in range(tile.rows)]
    for group in [[row] for row in rows] if tile.tokens == 1 else [rows]:
        emit_products(builder, v.BF16_CODE, tile, group, block, block_bytes)
