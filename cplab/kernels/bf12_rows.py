"""Rows x tokens of packed BF16: decoded, mended where a weight is an exception, then multiplied as BF16.

An exception cannot be added after the sum: the law takes products in ascending order, and only the weight in its place
gives the bits. So weights are mended before they are multiplied, in one of two ways:

* in registers, `cplab.kernels.bf12_registers`, with AVX-512: there are registers enough for decoded words beside the
  sums, and an instruction that puts a list's bytes into the lanes of a mask;
* in a buffer in first-level cache, `cplab.kernels.bf12_buffer`, everywhere else.
"""

from __future__ import annotations

from typing import Any

from cplab.formats import bf12
from cplab.kernels import bf12_buffer, bf12_registers
from cplab.kernels import vectors as v
from cplab.kernels.bf12_reading import packed_rows
from cplab.kernels.rows import float_shapes
from cplab.kernels.tiles import Shapes, Tile, Unit, emit_unit

CODE = v.BF12_CODE
#: Bytes of a step that one row, and that one token's activations take.
_STEP_BYTES = (bf12.STEP_BYTES, 4 * bf12.STEP)


def bf12_shapes(builder: Any) -> Shapes:
    """The tiles of packed BF16 on the target: those of BF16."""
    return float_shapes(builder, v.BF16_CODE)


def emit_bf12_unit(builder: Any, unit: Unit) -> None:
    """Emit 16 packed rows times all tokens of a panel."""
    packed, shapes, in_order = packed_rows(builder, unit), bf12_shapes(builder), list(range(v.LANES))
    if bf12_registers.fits(builder):
        positions = bf12_registers.positions(builder)

        def in_registers(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
            bf12_registers.emit_steps(builder, unit, tile, packed, positions, first, last)

        emit_unit(builder, unit, shapes, packed.steps, _STEP_BYTES, in_order, in_registers)
        return
    buffer = bf12_buffer.reserved(builder)

    def prepare(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        bf12_buffer.emit_first_rows(builder, unit, tile, packed, buffer, first, last)

    def buffered(builder: Any, unit: Unit, tile: Tile, first: Any, last: Any) -> None:
        bf12_buffer.emit_steps(builder, unit, tile, packed, buffer, first, last)

    emit_unit(builder, unit, shapes, packed.steps, _STEP_BYTES, in_order, buffered, prepare)
