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
from cplab.kernels.tiles import Shapes, Tile, Unit, emit_unit, register_vectors

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
    return {8: ((2, 1), (1, 2)), 4: ((1, 1),)}[register_vectors(builder)]


def emit_quantised_unit(builder: Any, kind: Quantised, unit: Unit) -> None:
    """Emit 16 rows of a quantised format times all tokens of a panel of quantised activations."""
    columns = STEP * kind.line_steps
    lines = builder.udiv(builder.add(unit.n, v.i64(columns - 1)), v.i64(columns))

    def lines_of(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_lines(builder, kind, unit, tile, lines, first, last)

    step_bytes = v.CACHE_LINE, RECORD_BYTES * kind.line_steps
    emit_unit(builder, unit, quantised_shapes(builder, kind), lines, step_bytes, LANE_OF, lines_of)


def _emit_lines(builder: Any, kind: Quantised, unit: Unit, tile: Tile, lines: Any, first: Any, last: Any) -> None:
    """Products of a tile over the lines ``first`` .. ``last - 1``."""
    scale_bytes = builder.mul(lines, v.i64(kind.line_steps * v.CACHE_LINE))
    line_bytes = builder.shl(lines, v.i64(6))
    first_row = builder.add(builder.add(unit.w, scale_bytes), builder.mul(tile.row, line_bytes))
    rows = [builder.add(first_row, builder.mul(line_bytes, v.i64(r))) for r in range(tile.rows)]
    scales = builder.add(unit.w, builder.shl(tile.row, v.i64(2)))
    x = builder.add(unit.x, builder.mul(tile.token, v.i64(RECORD_BYTES)))
    many = v.i64(kind.line_steps)
    if register_vectors(builder) == 32:  # room for the weights of a whole line
        with v.counted(builder, last, start=first) as line:
            for part in range(kind.line_steps):
                step = builder.add(builder.mul(line, many), v.i64(part))
                _emit_step(builder, kind, unit, tile, rows, scales, x, (step, line, v.i64(part)))
        return
    with v.counted(builder, builder.mul(last, many), start=builder.mul(first, many)) as step:
        line, part = builder.udiv(step, many), builder.urem(step, many)
        _emit_step(builder, kind, unit, tile, rows, scales, x, (step, line, part))


def _emit_step(
    builder: Any, kind: Quantised, unit: Unit, tile: Tile, rows: list[Any], scales: Any, x: Any, at: tuple[Any, ...]
) -> None:
    """Products of 64 columns.

    ``rows`` and ``scales`` are addresses of the tile's first lines and first scales, ``at`` the step, its line and
    which part of the line it is.
    """
    step, line, part = at
    stored = [builder.add(row, builder.shl(line, v.i64(6))) for row in rows]
    scale_at = builder.add(scales, builder.shl(step, v.i64(6)))
    records = builder.add(x, builder.mul(step, builder.mul(unit.T, v.i64(RECORD_BYTES))))
    if not (isinstance(part, ir.Constant) and part.constant):  # a line is asked for once
        for address in stored:
            v.prefetch(builder, builder.add(address, tile.ahead))
    v.prefetch(builder, builder.add(scale_at, builder.shl(unit.row_bytes, v.i64(4))))
    # Where one token is all there is, a row is finished before the next is unpacked; more tokens share a row's weights.
    groups = [[r] for r in range(tile.rows)] if tile.tokens == 1 else [list(range(tile.rows))]
    for group in groups:
        _emit_products(builder, kind, tile, [(r, stored[r]) for r in group], part, scale_at, records)


def _emit_products(
    builder: Any,
    kind: Quantised,
    tile: Tile,
    rows: list[tuple[int, Any]],
    part: Any,
    scale_at: Any,
    records: Any,
) -> None:
    """Products of 64 weights of some rows with all tokens of the tile."""
    ready = []
    for r, address in rows:
        scales = v.widen_f16(builder, _pair(builder, scale_at, r))
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
