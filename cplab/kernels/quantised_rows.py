"""Rows x tokens in block-quantised formats: integer products of four, exact, then one fma a lane.

A step is 64 columns: two blocks of 32, sixteen groups of four products. The law gives groups 0..7 (the first block) to
lanes 0..7 and groups 8..15 to lanes 8..15; here the two blocks stand in turn, group 0, 8, 1, 9, ..., in weights and
activations alike, because then a lane's scale is one half of a pair, and a pair is spread over a vector by one
broadcast, where halves of a vector would take a shuffle. Which lane stands where does not change what is added to
what: `tiles` is told the places.

What lies in memory, and is made by `packing`:

* a unit of weights: scales ``[steps][16 rows][2]`` F16, then quants ``[16 rows][lines][64 bytes]``. A line
  holds a step of Q8_0 (int8), or two of Q4_0: the first in the low nibbles, the second in the high ones, each as 0..15;
* a panel of activations: ``[steps][T]`` records of 192 bytes: 64 int8; 16 int32 corrections, one a lane; the two
  blocks' scales in float32. Where weights are kept with an offset (nibbles, and Q8_0 under VNNI, whose first operand is
  unsigned) the sum of products starts from minus the offset's share, which depends on the activations alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from cplab.formats import FORMATS
from cplab.kernels import int_products as products
from cplab.kernels import vectors as v
from cplab.kernels.tiles import Shapes, Tile, Unit, emit_unit, most_steps, register_vectors

#: Columns of a step, and of a block.
STEP, BLOCK = 64, 32
#: Bytes of a record of activations, and where its corrections and scales start.
RECORD_BYTES, CORRECTIONS, SCALES = 192, 64, 128
#: Where the canonical lane j stands.
LANE_OF = [2 * j for j in range(8)] + [2 * j + 1 for j in range(8)]


class Quantised(NamedTuple):
    """A block-quantised format at compile time.

    Attributes:
        code: format code.
        line_steps: steps in a line of 64 bytes.
        offset: what was added to a weight where it is kept unsigned.
    """

    code: int
    line_steps: int
    offset: int


Q8_0 = Quantised(FORMATS["q8_0"].code, 1, 128)
Q4_0 = Quantised(FORMATS["q4_0"].code, 2, 8)
#: By format code.
KINDS = {kind.code: kind for kind in (Q8_0, Q4_0)}


def quantised_shapes(builder: Any, kind: Quantised) -> Shapes:
    """The tiles of a quantised format on the target; a line of Q4_0 is two steps, whose weights want room."""
    if register_vectors(builder) == 32:
        if kind is Q4_0:
            return (4, 2), (2, 4), (1, 4)
        return ((8, 2), (4, 4), (2, 4), (1, 4)) if products.has_vnni(builder) else ((8, 2), (4, 2), (2, 4), (1, 4))
    return {8: ((2, 1), (1, 1 if kind is Q4_0 else 2)), 4: ((1, 1),)}[register_vectors(builder)]


class _Scales:
    """A lone token's scales: of its weights and of itself, multiplied for a whole chunk before any row is.

    A scale is widened, doubled and multiplied for no more than 32 products, which in the loop over a row is work that
    compares with the products' own. Scales of a step lie side by side in memory: one vector takes eight rows' pairs
    here, and the loop is left with a load that spreads what it loads.
    """

    def __init__(self, builder: Any, steps: int) -> None:
        with builder.goto_entry_block():
            room = builder.alloca(v.VECTOR, 2 * steps, name="scales")
            room.align = v.CACHE_LINE
        self._room = builder.ptrtoint(room, v.I64)

    def multiply(self, builder: Any, unit: Unit, token: Any, first: Any, last: Any) -> None:
        """Fill in those of the steps ``first`` .. ``last - 1``."""
        own = builder.add(unit.x, builder.mul(token, v.i64(RECORD_BYTES)))
        with v.counted(builder, last, start=first) as step:
            record = builder.add(own, builder.mul(step, builder.mul(unit.T, v.i64(RECORD_BYTES))))
            of_token = _float_pair(builder, builder.add(record, v.i64(SCALES)))
            stored = builder.add(unit.w, builder.shl(step, v.i64(6)))
            v.prefetch(builder, builder.add(stored, builder.shl(unit.row_bytes, v.i64(4))))
            for half in range(2):
                raw = v.load(builder, builder.add(stored, v.i64(32 * half)), ir.VectorType(v.I16, v.LANES))
                at = builder.add(self._at(builder, first, step), v.i64(64 * half))
                v.store(builder, builder.fmul(v.widen_f16(builder, raw), of_token), at, v.CACHE_LINE)

    def pair(self, builder: Any, first: Any, step: Any, row: Any) -> Any:
        """A row's two of a step, in turn over 16 lanes."""
        return _float_pair(builder, builder.add(self._at(builder, first, step), builder.shl(row, v.i64(3))))

    def _at(self, builder: Any, first: Any, step: Any) -> Any:
        return builder.add(self._room, builder.shl(builder.sub(step, first), v.i64(7)))


def emit_quantised_unit(builder: Any, kind: Quantised, unit: Unit) -> None:
    """Emit 16 rows of a quantised format times all tokens of a panel of quantised activations."""
    columns = STEP * kind.line_steps
    lines = builder.udiv(builder.add(unit.n, v.i64(columns - 1)), v.i64(columns))
    step_bytes = v.CACHE_LINE, RECORD_BYTES * kind.line_steps
    ready = _Scales(builder, most_steps(step_bytes[1]) * kind.line_steps)
    many = v.i64(kind.line_steps)

    def lines_of(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_lines(builder, kind, unit, tile, ready, lines, first, last)

    def begin(builder: Any, unit: Unit, tokens: int, token: Any, first: Any, last: Any) -> None:
        if tokens == 1:
            ready.multiply(builder, unit, token, builder.mul(first, many), builder.mul(last, many))

    emit_unit(builder, unit, quantised_shapes(builder, kind), lines, step_bytes, LANE_OF, lines_of, begin=begin)


def _emit_lines(
    builder: Any, kind: Quantised, unit: Unit, tile: Tile, ready: _Scales, lines: Any, first: Any, last: Any
) -> None:
    """Products of a tile over the lines ``first`` .. ``last - 1``."""
    scale_bytes = builder.mul(lines, v.i64(kind.line_steps * v.CACHE_LINE))
    line_bytes = builder.shl(lines, v.i64(6))
    quants = builder.add(unit.w, scale_bytes)
    rows = [builder.add(quants, builder.mul(line_bytes, tile.row_at(builder, r))) for r in range(tile.rows)]
    x = builder.add(unit.x, builder.mul(tile.token, v.i64(RECORD_BYTES)))
    many = v.i64(kind.line_steps)
    first_step = builder.mul(first, many)

    def records_of(step: Any) -> Any:
        return builder.add(x, builder.mul(step, builder.mul(unit.T, v.i64(RECORD_BYTES))))

    def asked_for(line: Any) -> list[Any]:
        stored = [builder.add(row, builder.shl(line, v.i64(6))) for row in rows]
        for address in stored:
            v.prefetch(builder, builder.add(address, tile.ahead))
        return stored

    if tile.tokens > 1 and register_vectors(builder) < 32:  # no room for what a whole line holds
        with v.counted(builder, builder.mul(last, many), start=first_step) as step:
            line, part = builder.udiv(step, many), builder.urem(step, many)
            _emit_step(builder, kind, unit, tile, asked_for(line), step, part, records_of(step))
        return
    with v.counted(builder, last, start=first) as line:
        stored = asked_for(line)
        steps = [builder.add(builder.mul(line, many), v.i64(part)) for part in range(kind.line_steps)]
        if tile.tokens > 1:
            for part, step in enumerate(steps):
                _emit_step(builder, kind, unit, tile, stored, step, v.i64(part), records_of(step))
            return
        for r, address in enumerate(stored):  # a row is finished before the next is unpacked
            for part, step in enumerate(steps):
                weights = _weights(builder, kind, address, v.i64(part))
                groups = builder.sitofp(weights.times(builder, records_of(step)), v.VECTOR)
                scales = ready.pair(builder, first_step, step, tile.row_at(builder, r))
                tile.accumulate(builder, r, 0, groups, scales)


def _emit_step(
    builder: Any, kind: Quantised, unit: Unit, tile: Tile, stored: list[Any], step: Any, part: Any, records: Any
) -> None:
    """Products of 64 columns of a tile's rows, whose lines are ``stored``, with several tokens, which share them."""
    scale_at = builder.add(builder.add(unit.w, builder.shl(tile.row, v.i64(2))), builder.shl(step, v.i64(6)))
    v.prefetch(builder, builder.add(scale_at, builder.shl(unit.row_bytes, v.i64(4))))
    ready = []
    for r, address in enumerate(stored):
        scales = v.widen_f16(builder, _pair(builder, scale_at, r * tile.apart))
        ready.append((r, _weights(builder, kind, address, part), scales))
    for t in range(tile.tokens):
        record = builder.add(records, v.i64(t * RECORD_BYTES))
        of_token = _float_pair(builder, builder.add(record, v.i64(SCALES)))
        for r, weights, scales in ready:
            groups = builder.sitofp(weights.times(builder, record), v.VECTOR)
            tile.accumulate(builder, r, t, groups, builder.fmul(scales, of_token))


def _weights(builder: Any, kind: Quantised, address: Any, part: Any) -> products.Weights:
    """A row's 64 quants of a step: of Q4_0 the low nibbles of a line, or (``part`` 1) the high ones."""
    line = v.load(builder, address, products.BYTES, align=1)
    if kind is Q8_0:
        return products.signed(builder, line)
    shift = v.spread(builder, builder.shl(builder.trunc(part, v.I32), ir.Constant(v.I32, 2)))
    words = builder.lshr(builder.bitcast(line, v.INTS), shift)
    return products.small(builder, builder.bitcast(builder.and_(words, v.splat_int(0x0F0F0F0F)), products.BYTES))


def _pair(builder: Any, scales: Any, r: int) -> Any:
    """Row r's two F16 scales of a step, in turn over 16 int16 lanes."""
    both = v.load(builder, builder.add(scales, v.i64(4 * r)), v.I32)
    return builder.bitcast(v.spread(builder, both, 8), ir.VectorType(v.I16, v.LANES))


def _float_pair(builder: Any, address: Any) -> Any:
    """Two float32, in turn over 16 lanes."""
    two = v.load(builder, address, ir.VectorType(v.FLOAT, 2))
    return v.shuffle(builder, two, two, [0, 1] * 8)
