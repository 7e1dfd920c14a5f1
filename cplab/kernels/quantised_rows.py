"""Rows x tokens in block-quantised formats: integer products of four, exact, then one fma a lane.

What lies in memory, and is made by `packing`:

* a unit of weights: scales (`quantised_scales`), then ``[16 rows][lines]`` of quants (`quantised_lines`);
* a panel of activations: ``[steps][T]`` records of 192 bytes: 64 int8; 16 int32 corrections, one a lane; the two
  blocks' scales in float32. Where weights are kept with an offset (planes of bits, and Q8_0 under VNNI, whose first
  operand is unsigned) the sum of products starts from minus the offset's share, which depends on the activations alone.
"""

from __future__ import annotations

from typing import Any

from cplab.kernels import int_products as products
from cplab.kernels import vectors as v
from cplab.kernels.quantised_lines import Q4_0, Q8_0, STEP, Quantised, weights
from cplab.kernels.quantised_scales import LANE_OF, RECORD_BYTES, Scales, scale_bytes
from cplab.kernels.tiles import Shapes, Tile, Unit, emit_unit, most_steps, register_vectors


def quantised_shapes(builder: Any, kind: Quantised) -> Shapes:
    """The tiles of a quantised format on the target; a line of several steps has weights that want room."""
    if register_vectors(builder) == 32:
        if kind is not Q8_0:
            return ((4, 2), (2, 4), (1, 4)) if kind is Q4_0 else ((4, 2), (2, 2), (1, 2))
        return ((8, 2), (4, 4), (2, 4), (1, 4)) if products.has_vnni(builder) else ((8, 2), (4, 2), (2, 4), (1, 4))
    return {8: ((2, 1), (1, 2 if kind is Q8_0 else 1)), 4: ((1, 1),)}[register_vectors(builder)]


def emit_quantised_unit(builder: Any, kind: Quantised, unit: Unit) -> None:
    """Emit 16 rows of a quantised format times all tokens of a panel of quantised activations."""
    columns = STEP * kind.line_steps
    lines = builder.udiv(builder.add(unit.n, v.i64(columns - 1)), v.i64(columns))
    step_bytes = kind.line_bytes, RECORD_BYTES * kind.line_steps
    scales = Scales(builder, kind, unit, lines, most_steps(step_bytes[1]))

    def lines_of(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        _emit_lines(builder, kind, unit, tile, scales, lines, first, last)

    def begin(builder: Any, unit: Unit, tokens: int, token: Any, first: Any, last: Any) -> None:
        if tokens == 1:
            scales.multiply(builder, token, first, last)

    emit_unit(builder, unit, quantised_shapes(builder, kind), lines, step_bytes, LANE_OF, lines_of, begin=begin)


def _emit_lines(
    builder: Any, kind: Quantised, unit: Unit, tile: Tile, scales: Scales, lines: Any, first: Any, last: Any
) -> None:
    """Products of a tile over the lines ``first`` .. ``last - 1``."""
    line_bytes, many = v.i64(kind.line_bytes), v.i64(kind.line_steps)
    row_bytes = builder.mul(lines, line_bytes)
    quants = builder.add(unit.w, builder.mul(lines, v.i64(scale_bytes(kind))))
    rows = [builder.add(quants, builder.mul(row_bytes, tile.row_at(builder, r))) for r in range(tile.rows)]
    x = builder.add(unit.x, builder.mul(tile.token, v.i64(RECORD_BYTES)))
    first_step = builder.mul(first, many)

    def records_of(step: Any) -> Any:
        return builder.add(x, builder.mul(step, builder.mul(unit.T, v.i64(RECORD_BYTES))))

    def stored_at(line: Any) -> list[Any]:
        return [builder.add(row, builder.mul(line, line_bytes)) for row in rows]

    def ask(address: Any) -> None:
        v.prefetch(builder, builder.add(address, tile.ahead))

    # Several tokens share what is unpacked; a line of many steps, or few registers, has no room for all of it.
    if tile.tokens > 1 and (register_vectors(builder) < 32 or kind.line_steps > 2):
        with v.counted(builder, builder.mul(last, many), start=first_step) as step:
            line, part = builder.udiv(step, many), builder.urem(step, many)
            stored = stored_at(line)
            for address in stored:  # a step's share of the line
                ask(builder.add(address, builder.mul(part, v.i64(kind.line_bytes // kind.line_steps))))
            _emit_step(builder, kind, tile, scales, stored, (line, step, part), records_of(step))
        return
    turn = _steps_a_turn(builder, kind)
    turns = v.i64(kind.line_steps // turn)
    with v.counted(builder, builder.mul(last, turns), start=builder.mul(first, turns)) as index:
        line, begin = builder.udiv(index, turns), builder.mul(builder.urem(index, turns), v.i64(turn))
        stored = stored_at(line)
        for address in stored:
            share = kind.line_bytes // kind.line_steps
            for at in range(0, share * turn, v.CACHE_LINE):
                ask(builder.add(address, builder.add(builder.mul(begin, v.i64(share)), v.i64(at))))
        parts = [builder.add(begin, v.i64(part)) for part in range(turn)]
        steps = [(builder.add(builder.mul(line, many), part), part) for part in parts]
        if tile.tokens > 1:
            for step, part in steps:
                _emit_step(builder, kind, tile, scales, stored, (line, step, part), records_of(step))
            return
        for r, address in enumerate(stored):  # a row is finished before the next is unpacked
            for step, part in steps:
                unpacked = weights(builder, kind, address, part)
                groups = builder.sitofp(unpacked.times(builder, records_of(step)), v.VECTOR)
                scale = scales.ready(builder, first_step, step, tile.row_at(builder, r))
                tile.accumulate(builder, r, 0, groups, scale)


def _steps_a_turn(builder: Any, kind: Quantised) -> int:
    """How many steps of a line are taken at once: all, or two where every product takes registers of its own."""
    return min(kind.line_steps, 2) if products.widens(builder) else kind.line_steps


def _emit_step(
    builder: Any,
    kind: Quantised,
    tile: Tile,
    scales: Scales,
    stored: list[Any],
    place: tuple[Any, Any, Any],
    records: Any,
) -> None:
    """Products of 64 columns of a tile's rows, whose lines are ``stored``, with several tokens, which share them.

    ``place``: the line, the step, and which step of the line it is.
    """
    line, step, part = place
    scales.ask(builder, step, tile.row)
    ready = []
    for r, address in enumerate(stored):
        scale = scales.of_row(builder, step, line, tile.row_at(builder, r))
        ready.append((r, weights(builder, kind, address, part), scale))
    for t in range(tile.tokens):
        record = builder.add(records, v.i64(t * RECORD_BYTES))
        of_token = scales.of_token(builder, record)
        for r, unpacked, scale in ready:
            groups = builder.sitofp(unpacked.times(builder, record), v.VECTOR)
            tile.accumulate(builder, r, t, groups, builder.fmul(scale, of_token))
