"""Activations as int8 blocks of 32: once for each vector, by whoever wrote it, for all rows that read it.

The law is `cplab.arithmetic_quantised.quantise`; the layout is told in `cplab.kernels.quantised_rows`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from cplab.jit import intrinsic, jit
from cplab.kernels import vectors as v
from cplab.kernels.quantised_scales import CORRECTIONS, RECORD_BYTES, SCALES

#: Adding and taking away this rounds to the nearest integer, ties to even, and leaves it in the lower bits between.
_MAGIC = 1.5 * 2.0**23
_SMALLEST_NORMAL = 2.0**-126
_EXPONENT = 0x7F800000


@intrinsic
def quantise_block(typingctx: Any, x: Any, x_step: Any, record: Any, parity: Any, offset: Any) -> Any:
    """Quantise 32 float32: two vectors at ``x`` and ``x + x_step``; 0 where one is NaN or infinite, else 1.

    Args:
        typingctx: numba's.
        x: address of the first 16 elements.
        x_step: bytes to the next 16.
        record: address of the step's record of this token.
        parity: 0 for the first block of the step, 1 for the second.
        offset: what stands on top of a weight that is kept unsigned; corrections are ``-offset * sum of four``.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, x_step, record, parity, offset = args
        halves = [v.load(builder, x), v.load(builder, builder.add(x, x_step))]
        largest = _largest_bits(builder, halves)
        finite = builder.icmp_signed("<", largest, ir.Constant(v.I32, _EXPONENT))
        d = builder.fdiv(builder.bitcast(largest, v.FLOAT), ir.Constant(v.FLOAT, 127.0))
        # Dividing by one rounds a block that is too small to have a scale to zeros. One that is not finite has no scale
        # either: panels fill columns up to whole lines with what earlier calls left, and zero weights times that
        # must be zero.
        zero = builder.fcmp_ordered("<", d, ir.Constant(v.FLOAT, _SMALLEST_NORMAL))
        zero = builder.or_(zero, builder.not_(finite))
        divisor = v.spread(builder, builder.select(zero, ir.Constant(v.FLOAT, 1.0), d))
        d = builder.select(zero, ir.Constant(v.FLOAT, 0.0), d)
        v.store(builder, d, builder.add(record, builder.add(v.i64(SCALES), builder.shl(parity, v.i64(2)))))
        first = builder.add(record, builder.shl(parity, v.i64(2)))
        factor = builder.neg(builder.trunc(offset, v.I32))
        for index, half in enumerate(halves):
            q = _rounded(builder, builder.fdiv(half, divisor))
            at = builder.add(first, v.i64(32 * index))
            _store_groups(builder, q, factor, at)
        return builder.zext(finite, v.I64)

    return types.int64(*([types.int64] * 5)), generate


def _largest_bits(builder: Any, halves: list[Any]) -> Any:
    """The largest absolute value of two vectors, as its bits: integers are ordered as the floats are."""
    a, b = (builder.and_(builder.bitcast(half, v.INTS), v.splat_int(0x7FFFFFFF)) for half in halves)
    top = builder.select(builder.icmp_signed(">", a, b), a, b)
    width = v.LANES
    while width > 1:
        width //= 2
        low = v.shuffle(builder, top, top, list(range(width)))
        high = v.shuffle(builder, top, top, list(range(width, 2 * width)))
        top = builder.select(builder.icmp_signed(">", low, high), low, high)
    return builder.extract_element(top, ir.Constant(v.I32, 0))


def _rounded(builder: Any, scaled: Any) -> Any:
    """Nearest int32, ties to even, within -127 .. 127."""
    magic = v.splat(_MAGIC)
    q = builder.sub(builder.bitcast(builder.fadd(scaled, magic), v.INTS), builder.bitcast(magic, v.INTS))
    for limit, beyond in ((127, ">"), (-127, "<")):
        q = builder.select(builder.icmp_signed(beyond, q, v.splat_int(limit)), v.splat_int(limit), q)
    return q


def _store_groups(builder: Any, q: Any, factor: Any, at: Any) -> None:
    """Four groups of four: their bytes, and their sums times ``factor``, 8 bytes apart."""
    words = builder.bitcast(builder.trunc(q, ir.VectorType(v.I8, v.LANES)), ir.VectorType(v.I32, 4))
    columns = [v.shuffle(builder, q, q, list(range(start, v.LANES, 4))) for start in range(4)]
    sums = builder.add(builder.add(columns[0], columns[1]), builder.add(columns[2], columns[3]))
    for group in range(4):
        lane = ir.Constant(v.I32, group)
        place = builder.add(at, v.i64(8 * group))
        v.store(builder, builder.extract_element(words, lane), place)
        correction = builder.mul(builder.extract_element(sums, lane), factor)
        v.store(builder, correction, builder.add(place, v.i64(CORRECTIONS)))


@jit()
def record_of(panel: int, T: int, t: int, block: int) -> int:
    """Address of the record that holds block ``block`` (of 32 columns) of token t."""
    return panel + ((block >> 1) * T + t) * RECORD_BYTES


@jit()
def quantise(x: int, T: int, t: int, first: int, last: int, panel: int, offset: int) -> bool:
    """Quantise blocks ``first`` .. ``last - 1`` of token t, from a float32 panel to a panel of records.

    Returns whether all of it was finite.
    """
    finite = True
    for block in range(first, last):
        source = x + (2 * block * T + t) * 64
        finite &= quantise_block(source, T * 64, record_of(panel, T, t, block), block & 1, offset) != 0
    return finite
