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
from cplab.kernels.tiles import Tile, Unit, emit_unit

#: Columns of a step, and of a block.
STEP, BLOCK = 64, 32
#: Bytes of a record of activations, and where its corrections and scales start.
RECORD_BYTES, CORRECTIONS, SCALES = 192, 64, 128
#: Where the canonical lane j stands.
LANE_OF = [2 * j for j in range(8)] + [2 * j + 1 for j in range(8)]

_PAIR = ir.VectorType(v.I32, 8)


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


def emit_quantised_unit(builder: Any, kind: Quantised, unit: Unit) -> None:
    """Emit 16 rows of a quantised format times all tokens of a panel of quantised activations."""
    columns = STEP * kind.line_steps
    lines = builder.udiv(builder.add(unit.n, v.i64(columns - 1)), v.i64(columns))

    def lines_of(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_lines(builder, kind, unit, tile, lines, first, last)

    emit_unit(builder, unit, lines, RECORD_BYTES * kind.line_steps, LANE_OF, lines_of)


def _emit_lines(builder: Any, kind: Quantised, unit: Unit, tile: Tile, lines: Any, first: Any, last: Any) -> None:
    """Products of a tile over the lines ``first`` .. ``last - 1``."""
    unit_bytes = builder.shl(unit.row_bytes, v.i64(4))
    scale_bytes = builder.mul(lines, v.i64(kind.line_steps * v.CACHE_LINE))
    line_bytes = builder.shl(lines, v.i64(6))
    first_row = builder.add(builder.add(unit.w, scale_bytes), builder.mul(tile.row, line_bytes))
    rows = [builder.add(first_row, builder.mul(line_bytes, v.i64(r))) for r in range(tile.rows)]
    scales = builder.add(unit.w, builder.shl(tile.row, v.i64(2)))
    x = builder.add(unit.x, builder.mul(tile.token, v.i64(RECORD_BYTES)))
    step_bytes = builder.mul(unit.T, v.i64(RECORD_BYTES))
    with v.counted(builder, last, start=first) as line:
        stored = [builder.add(row, builder.shl(line, v.i64(6))) for row in rows]
        for address in stored:
            v.prefetch(builder, builder.add(address, unit.ahead))
        for part in range(kind.line_steps):
            step = builder.add(builder.mul(line, v.i64(kind.line_steps)), v.i64(part))
            scale_at = builder.add(scales, builder.shl(step, v.i64(6)))
            v.prefetch(builder, builder.add(scale_at, unit_bytes))
            records = builder.add(x, builder.mul(step, step_bytes))
            weights = [_weights(builder, kind, address, part) for address in stored]
            spread = [v.widen_f16(builder, _pair(builder, scale_at, r)) for r in range(tile.rows)]
            for t in range(tile.tokens):
                record = builder.add(records, v.i64(t * RECORD_BYTES))
                of_token = _float_pair(builder, builder.add(record, v.i64(SCALES)))
                for r in range(tile.rows):
                    groups = builder.sitofp(weights[r].times(builder, record), v.VECTOR)
                    tile.accumulate(builder, r, t, groups, builder.fmul(spread[r], of_token))


def _weights(builder: Any, kind: Quantised, address: Any, part: int) -> products.Weights:
    """A row's 64 quants of a step."""
    line = v.load(builder, address, products.BYTES, align=1)
    if kind is Q8_0:
        return products.signed(builder, line)
    words = builder.bitcast(line, v.INTS)
    if part:
        words = builder.lshr(words, v.splat_int(4))
    return products.small(builder, builder.bitcast(builder.and_(words, v.splat_int(0x0F0F0F0F)), products.BYTES))


def _pair(builder: Any, scales: Any, r: int) -> Any:
    """Row r's two F16 scales of a step, in turn over 16 int16 lanes."""
    both = v.load(builder, builder.add(scales, v.i64(4 * r)), v.I32)
    one = builder.insert_element(ir.Constant(_PAIR, ir.Undefined), both, ir.Constant(v.I32, 0))
    return builder.bitcast(v.shuffle(builder, one, one, [0] * 8), ir.VectorType(v.I16, v.LANES))


def _float_pair(builder: Any, address: Any) -> Any:
    """Two float32, in turn over 16 lanes."""
    two = v.load(builder, address, ir.VectorType(v.FLOAT, 2))
    return v.shuffle(builder, two, two, [0, 1] * 8)
