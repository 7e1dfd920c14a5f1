"""Rows x tokens of packed BF16: decoded, mended where a weight is an exception, then multiplied as BF16.

An exception cannot be added after the sum: the law takes products in ascending order, and only the weight in its place
gives the bits.

One token: memory is what is waited for. Where there are registers enough, rows are decoded and multiplied in them
(`_emit_in_runs`). Most steps have no exception in any row; these are runs of one straight loop, which asks nothing. In
the step that ends a run words are mended in registers before they are multiplied.

One token, and too few registers, or exceptions in most steps, where no CPU foresees the end of a run and mending takes
as long as decoding: rows are decoded whole into a buffer in first-level cache, exceptions are stored over them, and
products read the buffer; while some rows are multiplied the next ones are decoded in the same loop (`_emit_both`), so
that memory never rests.

Which way is faster with how many exceptions was timed on one AVX-512 machine, without counters: that the buffer costs
more where exceptions are rare may come from CPUs that compare a load with the stores under way by the lower bits of
their addresses only, and there are eight streams of each.

More tokens: the first tile decodes each row whole into the buffer, and all others find it there.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

from numba.core import cgutils

from cplab.formats import bf12
from cplab.kernels import bf12_units
from cplab.kernels import vectors as v
from cplab.kernels.bf12_decoding import decoded, mended, table
from cplab.kernels.rows import emit_products, float_shapes
from cplab.kernels.tiles import UNIT, Shapes, Tile, Unit, emit_unit, register_vectors

CODE = v.BF12_CODE
#: Activations of a step, one token's.
_X_BYTES = 4 * bf12.STEP
#: From a row of the buffer to the next. Where one token is all there is, two groups of rows take turns, from rows 0 and
#: `_OTHER` on: no load of one then has the lower address bits of a store to the other nearby, which some CPUs take for
#: the same address.
_ROW_BYTES = 2 * bf12_units.MOST_COLUMNS + 1024
_OTHER = 6
#: Vectors of 16 float32 in a register file that decodes in registers.
_MANY_REGISTERS = 32
#: So many steps of a group of rows, or more, for each exception in it: runs are worth it.
_SHORTEST_RUN = 3


def bf12_shapes(builder: Any) -> Shapes:
    """The tiles of packed BF16 on the target: those of BF16."""
    return float_shapes(builder, v.BF16_CODE)


class _Packed(NamedTuple):
    """A unit's packed rows.

    Attributes:
        buffer: address of the buffer.
        steps: of a row.
        row_bytes: of a row.
        rows_at: address of the first row.
        in_runs: a lone token's rows are decoded in registers (emitted i1); None where there are too few of them.
    """

    buffer: Any
    steps: Any
    row_bytes: Any
    rows_at: Any
    in_runs: Any


def emit_bf12_unit(builder: Any, unit: Unit) -> None:
    """Emit 16 packed rows times all tokens of a panel."""
    with builder.goto_entry_block():
        room = builder.alloca(v.I8, _ROW_BYTES * UNIT, name="decoded")
        room.align = v.CACHE_LINE
    count = builder.lshr(builder.add(unit.n, v.i64(bf12.STEP - 1)), v.i64(6))
    row_bytes = builder.mul(count, v.i64(bf12.STEP_BYTES))
    rows_at = builder.add(unit.w, builder.shl(builder.sub(unit.row_bytes, row_bytes), v.i64(4)))
    buffer = v.opaque(builder, builder.ptrtoint(room, v.I64))  # else each access works out its place on the stack anew
    packed = _Packed(buffer, count, row_bytes, rows_at, _in_runs(builder, unit, count))

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
        with ExitStack() as buffered:
            if packed.in_runs is not None:
                then, otherwise = buffered.enter_context(builder.if_else(packed.in_runs))
                with then:
                    _emit_in_runs(builder, unit, tile, packed)
                buffered.enter_context(otherwise)
            with builder.if_else(is_followed) as (followed, last_rows):
                with followed:
                    _emit_both(builder, unit, tile, packed, own, next_row)
                with last_rows:
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
        self._unit, self._tile, self._row, self._at, self._tables = unit, tile, row, [], []
        for r in range(tile.rows):
            place = builder.add(row, v.i64(r * tile.apart))
            self._at.append(builder.add(packed.rows_at, builder.mul(packed.row_bytes, place)))
            self._tables.append(table(builder, v.load(builder, builder.add(unit.w, place), v.I8, align=1)))

    def decoded(self, builder: Any, r: int, step: Any) -> list[Any]:
        """A step of row ``r``, two vectors of words."""
        at = builder.add(self._at[r], builder.mul(step, v.i64(bf12.STEP_BYTES)))
        return decoded(builder, at, self._tables[r])

    def decode(self, builder: Any, out: _Place, step: Any, which: slice = slice(None)) -> None:
        """A step of each row, or of some, as BF16 words in the buffer."""
        for r in range(self._tile.rows)[which]:
            at = builder.add(out.row(builder, r), builder.shl(step, v.i64(7)))
            for half, words in enumerate(self.decoded(builder, r, step)):
                v.store(builder, words, builder.add(at, v.i64(half * bf12.STEP)), align=v.CACHE_LINE)

    def ask(self, builder: Any, ahead: Any, half: Any) -> None:
        """Prefetch what half a step of each row takes, so far ahead: less than a line, so that none is left out."""
        offset = builder.add(ahead, builder.mul(half, v.i64(bf12.STEP_BYTES // 2)))
        for at in self._at:
            v.prefetch(builder, builder.add(at, offset))

    def exceptions(self, builder: Any, r: int) -> _Exceptions:
        """Those of row ``r``."""
        place = builder.shl(builder.add(self._row, v.i64(r * self._tile.apart)), v.i64(1))
        starts = builder.add(self._unit.w, builder.add(place, v.i64(bf12_units.STARTS_AT)))
        begin, end = (_u16(builder, builder.add(starts, v.i64(2 * k))) for k in range(2))
        return _Exceptions(builder, builder.add(self._unit.w, v.i64(bf12_units.HEAD_BYTES)), begin, end)

    def mend(self, builder: Any, out: _Place) -> None:
        """Store exceptions over what was decoded into the buffer."""
        for r in range(self._tile.rows):
            exceptions, row = self.exceptions(builder, r), out.row(builder, r)
            with v.counted(builder, exceptions.end, start=exceptions.begin) as index:
                place, word = exceptions.entry(builder, index)
                v.store(builder, word, builder.add(row, builder.shl(place, v.i64(1))), align=2)


class _Exceptions:
    """A row's exceptions in ascending steps, ``list_at`` the address of the unit's; the next one is kept in mind."""

    def __init__(self, builder: Any, list_at: Any, begin: Any, end: Any) -> None:
        self.list_at, self.begin, self.end = list_at, begin, end
        self._next = cgutils.alloca_once_value(builder, begin)

    def entry(self, builder: Any, index: Any) -> tuple[Any, Any]:
        """An exception's place in the row (i64) and word (i16)."""
        at = builder.add(self.list_at, builder.shl(index, v.i64(2)))
        return _u16(builder, at), v.load(builder, builder.add(at, v.i64(2)), v.I16, align=2)

    def step(self, builder: Any, none: Any) -> Any:
        """The step of the next one, or ``none`` where there is no more."""
        index = builder.load(self._next)
        place, _ = self.entry(builder, index)
        return builder.select(builder.icmp_signed("<", index, self.end), builder.lshr(place, v.i64(6)), none)

    def mended(self, builder: Any, words: list[Any], step: Any) -> list[Any]:
        """The words of a step, as `bf12_decoding.decoded` has them, with the row's exceptions in their places."""
        slots = [cgutils.alloca_once_value(builder, half) for half in words]
        with v.repeated(builder, lambda: builder.icmp_signed("==", self.step(builder, v.i64(-1)), step)):
            index = builder.load(self._next)
            place, word = self.entry(builder, index)
            place = builder.trunc(builder.sub(place, builder.shl(step, v.i64(6))), v.I16)
            for half, slot in zip(
                mended(builder, [builder.load(slot) for slot in slots], place, word), slots, strict=True
            ):
                builder.store(half, slot)
            builder.store(builder.add(index, v.i64(1)), self._next)
        return [builder.load(slot) for slot in slots]


def _in_runs(builder: Any, unit: Unit, steps: Any) -> Any:
    """Whether a lone token's rows are decoded in registers: exceptions are rare in the unit.

    Where 16 float32 take two registers or more, what four vectors of decoded words and their tables take beside the
    sums is more than there is.
    """
    if register_vectors(builder) < _MANY_REGISTERS:
        return None
    first, last = (_u16(builder, builder.add(unit.w, v.i64(bf12_units.STARTS_AT + 2 * r))) for r in (0, UNIT))
    tile_rows = dict(bf12_shapes(builder))[1]
    wanted = builder.mul(builder.sub(last, first), v.i64(_SHORTEST_RUN * tile_rows))
    are_rare = builder.icmp_signed("<=", wanted, builder.mul(steps, v.i64(UNIT)))
    return builder.and_(are_rare, builder.icmp_signed("==", unit.T, v.i64(1)))


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
    """Decode a tile's rows into the buffer where that is its turn.

    That is the first tile's; a lone token's rows are decoded while those before them are multiplied, but for the first.
    """
    begins = builder.icmp_signed("==", builder.or_(first, tile.token), v.i64(0))
    with builder.if_then(begins):
        _ask_for_head(builder, unit, tile, packed)
    if tile.tokens == 1:
        is_alone = builder.icmp_signed("==", unit.T, v.i64(1))
        later = builder.and_(is_alone, builder.icmp_signed(">", tile.row, v.i64(0)))
        begins = builder.and_(begins, builder.not_(later))
        if packed.in_runs is not None:
            begins = builder.and_(begins, builder.not_(packed.in_runs))
    with builder.if_then(begins):
        own = _place(builder, unit, tile, packed, first, last)
        rows = _Rows(builder, unit, tile, packed, tile.row)
        with v.counted(builder, packed.steps) as step:
            rows.decode(builder, own, step)
        rows.mend(builder, own)


def _emit_products(builder: Any, unit: Unit, tile: Tile, packed: _Packed, own: _Place, first: Any, last: Any) -> None:
    """Products of a tile over the steps ``first`` .. ``last - 1``, of rows in the buffer."""
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


def _emit_in_runs(builder: Any, unit: Unit, tile: Tile, packed: _Packed) -> None:
    """Products of some rows with the only token, in runs that end with the next exception of any of the rows."""
    rows = _Rows(builder, unit, tile, packed, tile.row)
    exceptions = [rows.exceptions(builder, r) for r in range(tile.rows)]
    at = cgutils.alloca_once_value(builder, v.i64(0))
    whole = builder.lshr(unit.n, v.i64(6))  # n may end within its last step, which is then as one with exceptions
    with v.repeated(builder, lambda: builder.icmp_signed("<", builder.load(at), packed.steps)):
        end = _nearest(builder, [of_row.step(builder, whole) for of_row in exceptions], whole)
        end = v.opaque(builder, end)
        with v.counted(builder, end, start=builder.load(at)) as step:
            _ask_for_step(builder, tile, rows, step)
            for r in range(tile.rows):
                _multiply_words(builder, unit, tile, r, rows.decoded(builder, r, step), step)
        builder.store(builder.add(end, v.i64(1)), at)
        with builder.if_then(builder.icmp_signed("<", end, packed.steps)):
            _ask_for_step(builder, tile, rows, end)
            for r, of_row in enumerate(exceptions):
                words = of_row.mended(builder, rows.decoded(builder, r, end), end)
                _multiply_words(builder, unit, tile, r, words, end, may_end=True)


def _nearest(builder: Any, steps: list[Any], end: Any) -> Any:
    for step in steps:
        end = builder.select(builder.icmp_signed("<", step, end), step, end)
    return end


def _ask_for_step(builder: Any, tile: Tile, rows: _Rows, step: Any) -> None:
    for part in range(2):
        rows.ask(builder, tile.ahead, builder.add(builder.shl(step, v.i64(1)), v.i64(part)))


def _multiply_words(
    builder: Any, unit: Unit, tile: Tile, r: int, words: list[Any], step: Any, *, may_end: bool = False
) -> None:
    """Products of a step of row ``r`` with the only token; where n may end in the step, of what n has of it."""
    x = builder.add(unit.x, builder.shl(step, v.i64(8)))

    def products(half: int) -> None:
        both = builder.bitcast(words[half], v.INTS)
        for part in range(2):
            block = builder.add(x, v.i64((2 * half + part) * v.CACHE_LINE))
            tile.accumulate(builder, r, 0, v.half_of_bf16(builder, both, part), v.load(builder, block))

    products(0)
    if not may_end:
        products(1)
        return
    ends = builder.add(builder.shl(step, v.i64(6)), v.i64(bf12.STEP))
    with builder.if_then(builder.icmp_signed("<=", ends, unit.n)):
        products(1)


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
