"""Rows x tokens of packed BF16: rows are decoded into first-level cache, mended there, then multiplied as BF16.

An exception cannot be added after the sum: the law takes products in ascending order, and only the weight in its place
gives the bits. In registers its place would be a branch that no CPU foresees, and on weights with heavy tails every row
has some. So a decoder writes rows as BF16 words into a buffer, exceptions are stored over them, and the products of
`rows` read the buffer.

One token (`_emit_both`): memory is what is waited for. While some rows are multiplied the next ones are decoded in the
same loop, into another place of the buffer: with decoding and multiplying in turn, memory rested half of the time.

More tokens: the first tile decodes each row whole, and all others find it in the buffer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cplab.formats import bf12
from cplab.kernels import bf12_units
from cplab.kernels import vectors as v
from cplab.kernels.bf12_decoding import decode_step, table
from cplab.kernels.rows import emit_products, float_shapes
from cplab.kernels.tiles import UNIT, Shapes, Tile, Unit, emit_unit

CODE = v.BF12_CODE
#: Activations of a step, one token's.
_X_BYTES = 4 * bf12.STEP
#: From a row of the buffer to the next. Where one token is all there is, two groups of rows take turns, from rows 0 and
#: `_OTHER` on: no load of one then has the lower address bits of a store to the other nearby, which some CPUs take for
#: the same address.
_ROW_BYTES = 2 * bf12_units.MOST_COLUMNS + 1024
_OTHER = 6


def bf12_shapes(builder: Any) -> Shapes:
    """The tiles of packed BF16 on the target: those of BF16."""
    return float_shapes(builder, v.BF16_CODE)


class _Packed(NamedTuple):
    """A unit's packed rows (emitted int64s): the buffer, steps of a row, its bytes, and where the first row begins."""

    buffer: Any
    steps: Any
    row_bytes: Any
    rows_at: Any


def emit_bf12_unit(builder: Any, unit: Unit) -> None:
    """Emit 16 packed rows times all tokens of a panel."""
    with builder.goto_entry_block():
        room = builder.alloca(v.I8, _ROW_BYTES * UNIT, name="decoded")
        room.align = v.CACHE_LINE
    count = builder.lshr(builder.add(unit.n, v.i64(bf12.STEP - 1)), v.i64(6))
    row_bytes = builder.mul(count, v.i64(bf12.STEP_BYTES))
    rows_at = builder.add(unit.w, builder.shl(builder.sub(unit.row_bytes, row_bytes), v.i64(4)))
    buffer = v.opaque(builder, builder.ptrtoint(room, v.I64))  # else each access works out its place on the stack anew
    packed = _Packed(buffer, count, row_bytes, rows_at)

    def prepare(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _first_rows(builder, unit, tile, packed, first, last)

    def steps(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        own = _place(builder, unit, tile, packed, first, last)
        if tile.tokens > 1:
            _emit_products(builder, unit, tile, packed, own, first, last)
            return
        next_row = builder.add(tile.row, v.i64(1))
        is_alone = builder.icmp_signed("==", unit.T, v.i64(1))
        is_followed = builder.and_(is_alone, builder.icmp_signed("<", next_row, v.i64(tile.apart)))
        with builder.if_else(is_followed) as (then, otherwise):
            with then:
                _emit_both(builder, unit, tile, packed, own, next_row)
            with otherwise:
                _emit_products(builder, unit, tile, packed, own, first, last)

    step_bytes = (bf12.STEP_BYTES, _X_BYTES)
    emit_unit(builder, unit, bf12_shapes(builder), count, step_bytes, list(range(v.LANES)), steps, prepare)


class _Place(NamedTuple):
    """Where in the buffer a tile's rows are: address of the first, and bytes from each to the next (emitted int64s)."""

    at: Any
    stride: Any

    def row(self, builder: Any, r: int) -> Any:
        """Address of row ``r`` of the tile."""
        return builder.add(self.at, builder.mul(self.stride, v.i64(r)))


class _Rows:
    """As many packed rows as a tile has, ``row`` the first of them."""

    def __init__(self, builder: Any, unit: Unit, tile: Tile, packed: _Packed, row: Any) -> None:
        self._unit, self._tile, self._row, self._at = unit, tile, row, []
        self._tables = []
        for r in range(tile.rows):
            place = builder.add(row, v.i64(r * tile.apart))
            self._at.append(builder.add(packed.rows_at, builder.mul(packed.row_bytes, place)))
            self._tables.append(table(builder, v.load(builder, builder.add(unit.w, place), v.I8, align=1)))

    def decode(self, builder: Any, out: _Place, step: Any, which: slice = slice(None)) -> None:
        """A step of each row, or of some, as BF16 words."""
        offset = builder.mul(step, v.i64(bf12.STEP_BYTES))
        for r in range(self._tile.rows)[which]:
            place = builder.add(out.row(builder, r), builder.shl(step, v.i64(7)))
            decode_step(builder, builder.add(self._at[r], offset), self._tables[r], place)

    def ask(self, builder: Any, ahead: Any, half: Any) -> None:
        """Prefetch what half a step of each row takes, so far ahead: less than a line, so that none is left out."""
        offset = builder.add(ahead, builder.mul(half, v.i64(bf12.STEP_BYTES // 2)))
        for at in self._at:
            v.prefetch(builder, builder.add(at, offset))

    def mend(self, builder: Any, out: _Place) -> None:
        """Store exceptions over what was decoded."""
        for r in range(self._tile.rows):
            place = builder.shl(builder.add(self._row, v.i64(r * self._tile.apart)), v.i64(1))
            starts = builder.add(self._unit.w, builder.add(place, v.i64(bf12_units.STARTS_AT)))
            begin, end = (_u16(builder, builder.add(starts, v.i64(2 * k))) for k in range(2))
            entries = builder.add(self._unit.w, v.i64(bf12_units.HEAD_BYTES))
            row = out.row(builder, r)
            with v.counted(builder, end, start=begin) as index:
                entry = builder.add(entries, builder.shl(index, v.i64(2)))
                word = v.load(builder, builder.add(entry, v.i64(2)), v.I16, align=2)
                v.store(builder, word, builder.add(row, builder.shl(_u16(builder, entry), v.i64(1))), align=2)


def _place(builder: Any, unit: Unit, tile: Tile, packed: _Packed, first: Any, last: Any) -> _Place:
    """Where in the buffer a tile's rows are.

    Rows that some other tile or a later chunk of columns needs as well have places of their own; else two places, which
    stay in first-level cache, are enough.
    """
    is_only = builder.icmp_signed("<=", unit.T, v.i64(tile.tokens))
    is_only = builder.and_(is_only, builder.icmp_signed("==", builder.sub(last, first), packed.steps))
    in_turn = builder.mul(builder.and_(tile.row, v.i64(1)), v.i64(_OTHER))
    place = builder.select(is_only, in_turn, tile.row)
    apart = builder.select(is_only, v.i64(1), v.i64(tile.apart))
    return _Place(
        builder.add(packed.buffer, builder.mul(place, v.i64(_ROW_BYTES))), builder.mul(apart, v.i64(_ROW_BYTES))
    )


def _first_rows(builder: Any, unit: Unit, tile: Tile, packed: _Packed, first: Any, last: Any) -> None:
    """Decode a tile's rows where that is its turn: the first tile's, and of a token alone the first rows only."""
    begins = builder.icmp_signed("==", builder.or_(first, tile.token), v.i64(0))
    own = _place(builder, unit, tile, packed, first, last)
    if tile.tokens == 1:
        is_alone = builder.icmp_signed("==", unit.T, v.i64(1))
        later = builder.and_(is_alone, builder.icmp_signed(">", tile.row, v.i64(0)))
        begins = builder.and_(begins, builder.not_(later))
    with builder.if_then(begins):
        _ask_for_head(builder, unit, tile, packed)
        rows = _Rows(builder, unit, tile, packed, tile.row)
        with v.counted(builder, packed.steps) as step:
            rows.decode(builder, own, step)
        rows.mend(builder, own)


def _emit_products(builder: Any, unit: Unit, tile: Tile, packed: _Packed, own: _Place, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``."""
    begin, end = (builder.shl(step, v.i64(1)) for step in (first, last))
    halves = builder.lshr(unit.n, v.i64(5))
    end = builder.select(builder.icmp_signed("<", end, halves), end, halves)
    rows = _Rows(builder, unit, tile, packed, tile.row)
    with v.counted(builder, end, start=begin) as half:
        rows.ask(builder, tile.ahead, half)
        _multiply(builder, unit, tile, own, half)


def _emit_both(builder: Any, unit: Unit, tile: Tile, packed: _Packed, own: _Place, next_row: Any) -> None:
    """Products of some rows with the only token, while those after them are decoded to the other place."""
    ends = builder.add(builder.add(packed.buffer, packed.buffer), v.i64(_OTHER * _ROW_BYTES))
    other = _Place(builder.sub(ends, own.at), own.stride)
    rows = _Rows(builder, unit, tile, packed, next_row)
    whole = builder.lshr(unit.n, v.i64(6))
    ahead = builder.sub(tile.ahead, packed.row_bytes)  # the rows that are decoded are one further than the tile's
    with v.counted(builder, whole) as step:
        for part in range(2):  # in turn, so that neither has all registers at once
            half = builder.add(builder.shl(step, v.i64(1)), v.i64(part))
            rows.ask(builder, ahead, half)
            rows.decode(builder, other, step, slice(part * tile.rows // 2, (part + 1) * tile.rows // 2))
            _multiply(builder, unit, tile, own, half)
    with builder.if_then(builder.icmp_signed("<", whole, packed.steps)):  # n ends within its last step
        rows.decode(builder, other, whole)
        _multiply(builder, unit, tile, own, builder.shl(whole, v.i64(1)))
    rows.mend(builder, other)


def _ask_for_head(builder: Any, unit: Unit, tile: Tile, packed: _Packed) -> None:
    """Prefetch the next unit's head, which no row asks for."""
    lines = builder.lshr(builder.sub(packed.rows_at, unit.w), v.i64(6))
    at = builder.add(unit.w, builder.shl(unit.row_bytes, v.i64(4)))
    with builder.if_then(builder.icmp_signed("==", tile.row, v.i64(0))), v.counted(builder, lines) as line:
        v.prefetch(builder, builder.add(at, builder.shl(line, v.i64(6))))


def _u16(builder: Any, address: Any) -> Any:
    return builder.zext(v.load(builder, address, v.I16, align=2), v.I64)


def _multiply(builder: Any, unit: Unit, tile: Tile, own: _Place, half: Any) -> None:
    """Products of 32 decoded weights of the tile's rows with its tokens."""
    block_bytes = builder.shl(unit.T, v.i64(6))
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    block = builder.add(x, builder.mul(builder.shl(half, v.i64(1)), block_bytes))
    rows = [(r, builder.add(own.row(builder, r), builder.shl(half, v.i64(6)))) for r in range(tile.rows)]
    for group in [[row] for row in rows] if tile.tokens == 1 else [rows]:
        emit_products(builder, v.BF16_CODE, tile, group, block, block_bytes)
