"""Rows x tokens of packed BF16: a tile's rows are decoded into first-level cache, mended there, then multiplied as BF16.

An exception cannot be added after the sum: the law takes products in ascending order, and only the weight in its place
gives the bits. In registers its place would be a branch that no CPU foresees, and on weights with heavy tails every row
has some. So the decoder writes the tile's rows as BF16 words into a buffer, exceptions are stored over them, and the
products of `rows` read the buffer: for one token a store and a load for each 16 weights, while memory is waited for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from cplab.formats import bf12
from cplab.jit import has_feature
from cplab.kernels import bf12_units
from cplab.kernels import vectors as v
from cplab.kernels.rows import emit_products, float_shapes
from cplab.kernels.tiles import CHUNK_BYTES, UNIT, Shapes, Tile, Unit, emit_unit

CODE = v.BF12_CODE
#: Activations of a step, one token's.
_X_BYTES = 4 * bf12.STEP
#: Columns that a chunk can have, and bytes of a row in the buffer: those, and a place for what belongs to other chunks.
_COLUMNS = CHUNK_BYTES // 4
_ROW_BYTES = 2 * _COLUMNS + v.CACHE_LINE
import os
def _PAIR_BYTES(rows): return _ROW_BYTES * rows + int(os.environ.get('GAP','2048'))
_BYTES = ir.VectorType(v.I8, bf12.STEP)
_CODES = ir.VectorType(v.I8, bf12.STEP // 2)
#: Upper bytes of the 16 codes over base 0.
_TABLE = [*range(8), *range(-128, -120)]


def bf12_shapes(builder: Any) -> Shapes:
    """The tiles of packed BF16 on the target: those of BF16."""
    return float_shapes(builder, v.BF16_CODE)


def emit_bf12_unit(builder: Any, unit: Unit) -> None:
    """Emit 16 packed rows times all tokens of a panel."""
    shapes = bf12_shapes(builder)
    count = builder.lshr(builder.add(unit.n, v.i64(bf12.STEP - 1)), v.i64(6))
    with builder.goto_entry_block():
        room = builder.alloca(v.I8, 2 * _PAIR_BYTES(max(rows for _, rows in shapes)), name="decoded")
        room.align = v.CACHE_LINE
    buffer = builder.ptrtoint(room, v.I64)

    def steps(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_steps(builder, unit, tile, buffer, count, first, last)

    emit_unit(builder, unit, shapes, count, _X_BYTES, list(range(v.LANES)), steps)


class _Packed(NamedTuple):
    """Some packed rows: addresses of their first steps, and their tables."""

    at: list[Any]
    tables: list[Any]


def _emit_steps(builder: Any, unit: Unit, tile: Tile, buffer: Any, count: Any, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, while the rows after it are decoded."""
    size = v.i64(_PAIR_BYTES(tile.rows))
    odd = builder.and_(builder.udiv(tile.row, v.i64(tile.rows)), v.i64(1))
    own = builder.add(buffer, builder.mul(odd, size))
    other = builder.sub(builder.add(buffer, size), builder.mul(odd, size))
    with builder.if_then(builder.icmp_signed("==", tile.row, v.i64(0))):
        packed = _packed(builder, unit, tile, tile.row, count)
        with v.counted(builder, last, start=first) as step:
            _decode(builder, tile, packed, own, step, first)
        _mend_rows(builder, unit, tile, tile.row, own, first, last)
    row = builder.add(tile.row, v.i64(tile.rows))
    more = builder.icmp_signed("<", row, v.i64(UNIT))
    with builder.if_else(more) as (then, otherwise):
        with then:
            packed = _packed(builder, unit, tile, row, count)
            whole = _whole_steps(builder, unit, last)
            with v.counted(builder, whole, start=first) as step:
                _decode(builder, tile, packed, other, step, first)
                for half in range(2):
                    _multiply(builder, unit, tile, own, step, first, half)
            with builder.if_then(builder.icmp_signed("<", whole, last)):
                _decode(builder, tile, packed, other, whole, first)
                _multiply(builder, unit, tile, own, whole, first, 0)
            _mend_rows(builder, unit, tile, row, other, first, last)
        with otherwise:
            whole = _whole_steps(builder, unit, last)
            with v.counted(builder, whole, start=first) as step:
                for half in range(2):
                    _multiply(builder, unit, tile, own, step, first, half)
            with builder.if_then(builder.icmp_signed("<", whole, last)):
                _multiply(builder, unit, tile, own, whole, first, 0)


def _whole_steps(builder: Any, unit: Unit, last: Any) -> Any:
    """``last``, or one less where n ends within its step."""
    whole = builder.lshr(unit.n, v.i64(6))
    return builder.select(builder.icmp_signed("<", whole, last), whole, last)


def _packed(builder: Any, unit: Unit, tile: Tile, row: Any, count: Any) -> _Packed:
    """As many rows as the tile has, from ``row`` on."""
    row_bytes = builder.mul(count, v.i64(bf12.STEP_BYTES))
    unit_end = builder.add(unit.w, builder.shl(unit.row_bytes, v.i64(4)))
    rows_at = builder.sub(unit_end, builder.shl(row_bytes, v.i64(4)))
    at, tables = [], []
    for r in range(tile.rows):
        place = builder.add(row, v.i64(r))
        at.append(builder.add(rows_at, builder.mul(row_bytes, place)))
        base = v.load(builder, builder.add(unit.w, place), v.I8, align=1)
        tables.append(builder.add(ir.Constant(ir.VectorType(v.I8, 16), _TABLE), v.spread(builder, base)))
    return _Packed(at, tables)


def _decode(builder: Any, tile: Tile, packed: _Packed, out: Any, step: Any, first: Any) -> None:
    """A step of some rows as BF16 words."""
    offset = builder.mul(step, v.i64(bf12.STEP_BYTES))
    out = builder.add(out, builder.shl(builder.sub(step, first), v.i64(7)))
    # Rows lie one after the other, and are asked for in that order.
    size = bf12.STEP_BYTES * tile.rows
    ahead = builder.add(builder.add(packed.at[0], tile.ahead), builder.mul(step, v.i64(size)))
    for line in range(0, size, v.CACHE_LINE):
        v.prefetch(builder, builder.add(ahead, v.i64(line)))
    for r, (at, table) in enumerate(zip(packed.at, packed.tables, strict=True)):
        _decode_step(builder, builder.add(at, offset), table, builder.add(out, v.i64(r * _ROW_BYTES)))


def _decode_step(builder: Any, address: Any, table: Any, out: Any) -> None:
    """64 words at ``out``, of 96 bytes at ``address``."""
    low = v.load(builder, address, _BYTES, align=1)
    codes = v.load(builder, builder.add(address, v.i64(bf12.STEP)), _CODES, align=1)
    lower = builder.and_(codes, ir.Constant(_CODES, [15] * _CODES.count))
    higher = builder.lshr(codes, ir.Constant(_CODES, [4] * _CODES.count))
    code = v.shuffle(builder, lower, higher, list(range(bf12.STEP)))
    upper = _looked_up(builder, table, code)
    for half in range(2):
        lanes = [16 * q + 8 * half + i for q in range(4) for i in range(8)]
        pairs = [place for lane in lanes for place in (lane, bf12.STEP + lane)]
        v.store(builder, v.shuffle(builder, low, upper, pairs), builder.add(out, v.i64(half * bf12.STEP)), align=64)


def _looked_up(builder: Any, table: Any, code: Any) -> Any:
    """Entries of a table of 16 bytes by 64 codes from 0 to 15."""
    if v.is_arm64(builder):
        return _by_parts(builder, 16, "llvm.aarch64.neon.tbl1.v16i8", table, code, table_first=True)
    if v.is_x86(builder) and has_feature("avx512bw"):
        return _by_parts(builder, 64, "llvm.x86.avx512.pshuf.b.512", table, code)
    if v.is_x86(builder) and has_feature("avx2"):
        return _by_parts(builder, 32, "llvm.x86.avx2.pshuf.b", table, code)
    if v.is_x86(builder) and has_feature("ssse3"):
        return _by_parts(builder, 16, "llvm.x86.ssse3.pshuf.b.128", table, code)
    base = v.shuffle(builder, table, table, [0] * bf12.STEP)
    pair = builder.and_(code, ir.Constant(_BYTES, [7] * bf12.STEP))
    sign = builder.shl(builder.and_(code, ir.Constant(_BYTES, [8] * bf12.STEP)), ir.Constant(_BYTES, [4] * bf12.STEP))
    return builder.or_(builder.add(pair, base), sign)


def _by_parts(builder: Any, width: int, name: str, table: Any, code: Any, *, table_first: bool = False) -> Any:
    """Call an instruction of ``width`` bytes on 64 codes; the table is repeated every 16 bytes."""
    kind = ir.VectorType(v.I8, width)
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, kind]), name)
    wide = v.shuffle(builder, table, table, list(range(16)) * (width // 16))
    parts = []
    for first in range(0, bf12.STEP, width):
        part = v.shuffle(builder, code, code, list(range(first, first + width)))
        parts.append(builder.call(function, [wide, part]))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [v.shuffle(builder, a, b, list(range(2 * a.type.count))) for a, b in pairs]
    return parts[0]


def _mend_rows(builder: Any, unit: Unit, tile: Tile, row: Any, buffer: Any, first: Any, last: Any) -> None:
    """Store the exceptions of the rows from ``row`` on that lie within the steps over what was decoded."""
    start = builder.shl(first, v.i64(6))
    columns = builder.shl(builder.sub(last, first), v.i64(6))
    elsewhere = v.i64(_COLUMNS)
    for r in range(tile.rows):
        at = builder.shl(builder.add(row, v.i64(r)), v.i64(1))
        starts = builder.add(unit.w, builder.add(v.i64(bf12_units.STARTS_AT), at))
        begin, end = (_u16(builder, builder.add(starts, v.i64(2 * k))) for k in range(2))
        out = builder.add(buffer, v.i64(r * _ROW_BYTES))
        if os.environ.get('NOMEND'): end=begin
        with v.counted(builder, end, start=begin) as index:
            entry = builder.add(unit.w, builder.add(v.i64(bf12_units.HEAD_BYTES), builder.shl(index, v.i64(2))))
            place = builder.sub(_u16(builder, entry), start)
            here = builder.icmp_unsigned("<", place, columns)
            at = builder.add(out, builder.shl(builder.select(here, place, elsewhere), v.i64(1)))
            v.store(builder, v.load(builder, builder.add(entry, v.i64(2)), v.I16, align=2), at, align=2)


def _u16(builder: Any, address: Any) -> Any:
    return builder.zext(v.load(builder, address, v.I16, align=2), v.I64)


def _multiply(builder: Any, unit: Unit, tile: Tile, buffer: Any, step: Any, first: Any, half: int) -> None:
    """Products of half a step of the decoded rows with the tile's tokens."""
    block_bytes = builder.shl(unit.T, v.i64(6))
    x = builder.add(unit.x, builder.shl(tile.token, v.i64(6)))
    block = builder.add(builder.shl(step, v.i64(2)), v.i64(2 * half))
    block = builder.add(x, builder.mul(block, block_bytes))
    at = builder.add(buffer, builder.shl(builder.sub(step, first), v.i64(7)))
    rows = [(r, builder.add(at, v.i64(r * _ROW_BYTES + v.CACHE_LINE * half))) for r in range(tile.rows)]
    for group in [[row] for row in rows] if tile.tokens == 1 else [rows]:
        emit_products(builder, v.BF16_CODE, tile, group, block, block_bytes)
