"""Where the parts of a unit of packed BF16 are (`cplab.kernels.bf12_units`), and asking for them ahead of time."""

from __future__ import annotations

from typing import Any, NamedTuple

from cplab.formats import bf12
from cplab.kernels import bf12_units
from cplab.kernels import vectors as v
from cplab.kernels.bf12_decoding import table
from cplab.kernels.tiles import UNIT, Tile, Unit

#: log2 of `bf12.STEP`.
_SHIFT = bf12.STEP.bit_length() - 1


class Packed(NamedTuple):
    """A unit's packed rows; every field is an int64 of the emitted code.

    Attributes:
        steps: of a row; n may end in the middle of the last one.
        whole: steps that n fills.
        row_bytes: of a row.
        rows_at: address of the first row.
    """

    steps: Any
    whole: Any
    row_bytes: Any
    rows_at: Any


def packed_rows(builder: Any, unit: Unit) -> Packed:
    """Where a unit's rows are."""
    steps = builder.lshr(builder.add(unit.n, v.i64(bf12.STEP - 1)), v.i64(_SHIFT))
    row_bytes = builder.mul(steps, v.i64(bf12.STEP_BYTES))
    rows_at = builder.add(unit.w, builder.shl(builder.sub(unit.row_bytes, row_bytes), v.i64(4)))
    return Packed(steps, builder.lshr(unit.n, v.i64(_SHIFT)), row_bytes, rows_at)


class Rows:
    """As many packed rows as a tile has, ``row`` the first of them.

    Attributes:
        tables: of the rows, see `bf12_decoding.table`.
    """

    def __init__(self, builder: Any, unit: Unit, tile: Tile, packed: Packed, row: Any) -> None:
        self._unit, self._at, self.tables = unit, [], []
        self._rows = [builder.add(row, v.i64(r * tile.apart)) for r in range(tile.rows)]
        for index in self._rows:
            self._at.append(builder.add(packed.rows_at, builder.mul(packed.row_bytes, index)))
            self.tables.append(table(builder, v.load(builder, builder.add(unit.w, index), v.I8, align=1)))

    def index(self, r: int) -> Any:
        """Which row of the unit row ``r`` is."""
        return self._rows[r]

    def step_at(self, builder: Any, r: int, step: Any) -> Any:
        """Address of a step of row ``r``."""
        return builder.add(self._at[r], builder.mul(step, v.i64(bf12.STEP_BYTES)))

    def ask(self, builder: Any, ahead: Any, half: Any) -> None:
        """Prefetch what half a step of each row takes, so far ahead: less than a line, so that none is left out."""
        offset = builder.add(ahead, builder.mul(half, v.i64(bf12.STEP_BYTES // 2)))
        for at in self._at:
            v.prefetch(builder, builder.add(at, offset))

    def exceptions(self, builder: Any, r: int) -> tuple[Any, Any]:
        """Where row ``r``'s exceptions begin and end among the unit's."""
        begin = start_of(builder, self._unit, self._rows[r])
        return begin, start_of(builder, self._unit, builder.add(self._rows[r], v.i64(1)))


def start_of(builder: Any, unit: Unit, row: Any) -> Any:
    """Where the exceptions of a row of the unit begin among the unit's; of row 16, how many there are."""
    at = builder.add(unit.w, builder.add(builder.shl(row, v.i64(1)), v.i64(bf12_units.STARTS_AT)))
    return load_u16(builder, at)


def uppers_at(builder: Any, unit: Unit) -> Any:
    """Address of the upper bytes of a unit's exceptions."""
    return builder.add(unit.w, v.i64(bf12_units.HEAD_BYTES))


def places_at(builder: Any, unit: Unit, packed: Packed) -> Any:
    """Address of the places (16 bits each) of a unit's exceptions."""
    count = start_of(builder, unit, v.i64(UNIT))
    return builder.sub(packed.rows_at, builder.shl(count, v.i64(1)))


def ask_for_head(builder: Any, unit: Unit, tile: Tile, packed: Packed, first: Any) -> None:
    """Where a unit begins, prefetch the next one's head, which no row asks for; ``first``: the tile's first step."""
    begins = builder.icmp_signed("==", builder.or_(builder.or_(first, tile.token), tile.row), v.i64(0))
    lines = builder.lshr(builder.sub(packed.rows_at, unit.w), v.i64(6))
    at = builder.add(unit.w, builder.shl(unit.row_bytes, v.i64(4)))
    with builder.if_then(begins), v.counted(builder, lines) as line:
        v.prefetch(builder, builder.add(at, builder.shl(line, v.i64(6))))


def load_u16(builder: Any, address: Any) -> Any:
    """16 bits in memory as an int64."""
    return builder.zext(v.load(builder, address, v.I16, align=2), v.I64)
