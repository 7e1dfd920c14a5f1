"""What a unit of block-quantised weights is in memory, and its integers in registers.

A unit is 16 rows: their scales (`cplab.kernels.quantised_scales`), then row after row their quants in lines. A line
holds as many steps of 64 columns as make its planes whole cache lines:

======  =====  ==========================================================================================
format  steps  planes
======  =====  ==========================================================================================
q8_0    1      int8
q4_0    2      nibbles: one step in the low ones of 64 bytes, the next in the high ones
q6_k    4      two lines of nibbles, and one of the upper two bits: step s in bits 2 s and 2 s + 1 of a byte
q5_0    8      four lines of nibbles, and one of the fifth bits: step s in bit s of a byte
======  =====  ==========================================================================================

What is made of planes is unsigned, with the format's offset on top, and stays so: the offset is taken off in a
correction for each four products that depends on the activations alone. So a weight costs a load, a shift and a mask,
and where it has upper bits another shift, mask and an or.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
Q5_0 = Quantised(FORMATS["q5_0"].code, 8, 16, upper_bits=1)
#: By format code.
KINDS = {kind.code: kind for kind in (Q8_0, Q4_0, Q6_K, Q5_0)}


def weights(builder: Any, kind: Quantised, line: Any, part: Any) -> products.Weights:
    """A row's 64 quants of step ``part`` (int64) of the line at address ``line``."""
    if not kind.in_nibbles:
        return products.signed(builder, v.load(builder, line, products.BYTES, align=1))
    of_two = builder.add(line, builder.shl(builder.lshr(part, v.i64(1)), v.i64(6)))
    words = _shifted(builder, of_two, builder.shl(builder.and_(part, v.i64(1)), v.i64(2)))
    words = builder.and_(words, v.splat_int(0x0F0F0F0F))
    if kind.upper_bits:
        upper = builder.add(line, v.i64(kind.upper_at))
        bits = _shifted(builder, upper, builder.mul(part, v.i64(kind.upper_bits)))
        bits = builder.and_(bits, v.splat_int(0x01010101 * ((1 << kind.upper_bits) - 1)))
        words = builder.or_(words, builder.shl(bits, v.splat_int(4)))
    return products.small(builder, builder.bitcast(words, products.BYTES))


def _shifted(builder: Any, address: Any, by: Any) -> Any:
    """A cache line as 16 int32, each moved down by so many bits (int64)."""
    words = v.load(builder, address, v.INTS, align=1)
    return builder.lshr(words, v.spread(builder, builder.trunc(by, v.I32)))
