"""What a unit of block-quantised weights is in memory, and its integers in registers.

A unit is 16 rows: their scales (`cplab.kernels.quantised_scales`), then row after row their quants in lines. A line
is a few steps of 64 columns, whose planes share bytes:

======  =====  =====  ==========================================================================================
format  steps  bytes  planes
======  =====  =====  ==========================================================================================
q8_0    1      64     int8
q4_0    2      64     nibbles: one step in the low ones of 64 bytes, the next in the high ones
q6_k    4      192    two times nibbles, and 64 bytes of the upper two bits: step s in bits 2 s and 2 s + 1 of a byte
q5_0    4      160    two times nibbles, and 32 bytes of the fifth bits: step s in bit s of a byte, and in bit s + 4
                      that of the weight 32 further on, so that one register serves a whole line
======  =====  =====  ==========================================================================================

What is made of planes is unsigned, with the format's offset on top, and stays so: the offset is taken off in a
correction for each four products that depends on the activations alone. So a weight costs a load, a shift and a mask,
and where it has upper bits another shift, mask and an or.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from cplab.formats import FORMATS
from cplab.kernels import int_products as products
from cplab.kernels import vectors as v

#: Columns of a step, and of a block of activations.
STEP, BLOCK = 64, 32


class Quantised(NamedTuple):
    """A block-quantised format at compile time.

    Attributes:
        code: format code.
        line_steps: steps in a line.
        offset: what was added to a weight where it is kept unsigned.
        upper_bits: bits of a weight above its nibble.
        scaled: consecutive weights that share a scale.
    """

    code: int
    line_steps: int
    offset: int
    upper_bits: int = 0
    scaled: int = BLOCK

    @property
    def in_nibbles(self) -> bool:
        """Whether a weight's lower four bits are a plane of their own."""
        return self.line_steps > 1

    @property
    def line_bytes(self) -> int:
        """Bytes of a line: of nibbles, and of what is above them."""
        return self.line_steps * STEP * (4 + self.upper_bits) // 8 if self.in_nibbles else STEP

    @property
    def upper_at(self) -> int:
        """Where in a line the upper bits are."""
        return self.line_steps * STEP // 2


Q8_0 = Quantised(FORMATS["q8_0"].code, 1, 128)
Q4_0 = Quantised(FORMATS["q4_0"].code, 2, 8)
Q6_K = Quantised(FORMATS["q6_k"].code, 4, 32, upper_bits=2, scaled=16)
Q5_0 = Quantised(FORMATS["q5_0"].code, 4, 16, upper_bits=1)
#: By format code.
KINDS = {kind.code: kind for kind in (Q8_0, Q4_0, Q6_K, Q5_0)}


def weights(builder: Any, kind: Quantised, line: Any, part: Any) -> products.Weights:
    """A row's 64 quants of step ``part`` (int64) of the line at address ``line``."""
    if not kind.in_nibbles:
        return products.signed(builder, v.load(builder, line, products.BYTES, align=1))
    of_two = builder.add(line, builder.shl(builder.lshr(part, v.i64(1)), v.i64(6)))
    nibbles = v.load(builder, of_two, v.INTS, align=1)
    words = builder.lshr(nibbles, _spread(builder, builder.shl(builder.and_(part, v.i64(1)), v.i64(2))))
    words = builder.and_(words, v.splat_int(0x0F0F0F0F))
    if kind.upper_bits:
        words = builder.or_(words, _upper(builder, kind, builder.add(line, v.i64(kind.upper_at)), part))
    return products.small(builder, builder.bitcast(words, products.BYTES))


def _upper(builder: Any, kind: Quantised, address: Any, part: Any) -> Any:
    """What is above the nibbles of 64 quants, in its place: 16 int32."""
    if kind is Q6_K:
        words = builder.lshr(v.load(builder, address, v.INTS, align=1), _spread(builder, builder.shl(part, v.i64(1))))
        return builder.shl(builder.and_(words, v.splat_int(0x03030303)), v.splat_int(4))
    both = v.load(builder, address, ir.VectorType(v.I32, 8), align=1)
    halves = (
        builder.shl(both, _spread(builder, builder.sub(v.i64(4), part), 8)),
        builder.lshr(both, _spread(builder, part, 8)),
    )
    return builder.and_(v.shuffle(builder, *halves, list(range(16))), v.splat_int(0x10101010))


def _spread(builder: Any, count: Any, lanes: int = v.LANES) -> Any:
    """A shift's count (int64) for every lane."""
    return v.spread(builder, builder.trunc(count, v.I32), lanes)
