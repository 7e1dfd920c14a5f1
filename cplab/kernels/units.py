"""The matrix kernel: 16 rows of any format times all tokens of a panel, as one entry with a C address."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from cplab.jit import entry, intrinsic
from cplab.kernels import bf12_rows
from cplab.kernels import vectors as v
from cplab.kernels.quantised_lines import KINDS
from cplab.kernels.quantised_rows import emit_quantised_unit, quantised_shapes
from cplab.kernels.rows import alone_shapes, emit_float_unit, float_shapes
from cplab.kernels.tiles import Shapes, Unit

#: Every format code that a unit can have.
CODES = (*v.BYTES_PER_16, bf12_rows.CODE, *KINDS)


def shapes_of(builder: Any, code: int) -> Shapes:
    """The (tokens, rows) of the tiles of a format on the target, widest first."""
    if code == bf12_rows.CODE:
        return bf12_rows.bf12_shapes(builder)
    return quantised_shapes(builder, KINDS[code]) if code in KINDS else (*float_shapes(builder, code), *alone_shapes())


def emit_unit_of(builder: Any, code: int, unit: Unit) -> None:
    """Emit 16 rows of a format times all tokens of a panel."""
    if code in KINDS:
        emit_quantised_unit(builder, KINDS[code], unit)
    elif code == bf12_rows.CODE:
        bf12_rows.emit_bf12_unit(builder, unit)
    else:
        emit_float_unit(builder, code, unit)


@intrinsic
def _unit(typingctx: Any, code: Any, arguments: Any) -> Any:
    """Run the code of a format on a tuple of `Unit`'s fields; an unknown code does nothing."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        code, packed = args
        unit = Unit(*(builder.extract_value(packed, index) for index in range(len(Unit._fields))))
        done = builder.append_basic_block("done")
        choice = builder.switch(code, done)
        for known in CODES:
            block = builder.append_basic_block(f"format{known}")
            choice.add_case(ir.Constant(v.I64, known), block)
            builder.position_at_end(block)
            emit_unit_of(builder, known, unit)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.none(code, arguments), generate


@entry(types.void(*([types.int64] * 9)))
def unit(code: int, w: int, row_bytes: int, n: int, x: int, T: int, y: int, y_token: int, ahead: int) -> None:
    """``y[t][r] = dot(W[r], x[t])`` for 16 rows of format ``code``; the other arguments are those of `tiles.Unit`."""
    _unit(code, (w, row_bytes, n, x, T, y, y_token, ahead))
