"""Sums of four int8 products in int32 lanes, exact, by whichever instruction the target has.

=====================  ==============================================================================
AVX-512 VNNI, AVX-VNNI  vpdpbusd: unsigned x signed, so a signed weight is taken with 128 on top
AVX2, SSSE3             pmaddubsw of (abs w, x with w's sign), pairs within int16, then pmaddwd by one
Arm with dotprod        sdot
Arm without             smull, saddlp, addp
anything else           shifts, multiplications and additions of int32 lanes
=====================  ==============================================================================

All of them give the same integers: four products of at most 128 x 127 fit, and nothing on the way saturates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from cplab.jit import has_feature
from cplab.kernels import vectors as v

#: 64 bytes: a step of quants.
BYTES = ir.VectorType(v.I8, 64)


def has_vnni(builder: Any) -> bool:
    """Whether the target multiplies unsigned by signed bytes in one instruction."""
    return v.is_x86(builder) and (has_feature("avx512vnni", "avx512f") or has_feature("avxvnni"))


def widens(builder: Any) -> bool:
    """Whether products are made in twice their width and then added, several registers for every one of quants."""
    return not v.is_x86(builder) and not (v.is_arm64(builder) and has_feature("dotprod"))


class Weights(NamedTuple):
    """64 weights in registers, ready to be multiplied.

    Attributes:
        value: 64 bytes.
        unsigned: they stand for 0..255 (with the offset on top), and the sum starts from the token's corrections.
    """

    value: Any
    unsigned: bool

    def times(self, builder: Any, record: Any) -> Any:
        """16 int32: sums of four products with the quants of a record of activations."""
        x = v.load(builder, record, BYTES, align=1)
        if not self.unsigned:
            return _dot(builder, self.value, x)
        corrections = v.load(builder, builder.add(record, v.i64(64)), v.INTS)
        if has_vnni(builder):
            return _vpdpbusd(builder, corrections, self.value, x)
        return builder.add(corrections, _dot_small(builder, self.value, x))


def signed(builder: Any, line: Any) -> Weights:
    """Int8 weights; under VNNI moved by 128."""
    if not has_vnni(builder):
        return Weights(line, False)
    words = builder.bitcast(line, v.INTS)
    return Weights(builder.bitcast(builder.xor(words, v.splat_int(-0x7F7F7F80)), BYTES), True)


def small(builder: Any, line: Any) -> Weights:
    """Weights from 0 to 63, with an offset on top: two products with 127 stay within int16."""
    return Weights(line, True)


def added(builder: Any, start: Any, weights: Weights, x: Any) -> Any:
    """``start`` (16 int32) and on top of it the sums of four products of `signed` weights with 64 bytes.

    For the machine's peak, where nothing else is between two sums: under VNNI weights are taken with their offset on.
    """
    if weights.unsigned:
        return _vpdpbusd(builder, start, weights.value, x)
    if v.is_arm64(builder) and has_feature("dotprod"):
        return _by_parts(builder, 16, lambda s, w, x: _sdot(builder, s, w, x), start, weights.value, x)
    return builder.add(start, _dot(builder, weights.value, x))


def _by_parts(builder: Any, width: int, operation: Callable[..., Any], *operands: Any) -> Any:
    """Run an operation on ``width`` bytes of each 64-byte operand at a time, and join the int32 results."""
    parts = []
    for start in range(0, 64, width):
        cut = []
        for operand in operands:
            lanes = operand.type.count * width // 64
            first = start * operand.type.count // 64
            cut.append(v.shuffle(builder, operand, operand, list(range(first, first + lanes))))
        parts.append(operation(*cut))
    while len(parts) > 1:
        count = parts[0].type.count
        parts = [v.shuffle(builder, a, b, list(range(2 * count))) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), list(arguments))


def _vpdpbusd(builder: Any, start: Any, unsigned: Any, signed: Any) -> Any:
    if has_feature("avx512vnni", "avx512f"):
        return _call(builder, "llvm.x86.avx512.vpdpbusd.512", v.INTS, start, unsigned, signed)

    def half(start: Any, unsigned: Any, signed: Any) -> Any:
        return _call(builder, "llvm.x86.avx512.vpdpbusd.256", start.type, start, unsigned, signed)

    return _by_parts(builder, 32, half, start, unsigned, signed)


def _dot(builder: Any, w: Any, x: Any) -> Any:
    """Signed by signed."""
    if v.is_x86(builder) and has_feature("ssse3"):
        return _by_parts(
            builder, _madd_width(), lambda w, x: _madd(builder, _abs(builder, w), _sign(builder, x, w)), w, x
        )
    if v.is_arm64(builder):
        return _by_parts(builder, 16, lambda w, x: _arm_dot(builder, w, x), w, x)
    return _plain_dot(builder, w, x)


def _dot_small(builder: Any, w: Any, x: Any) -> Any:
    """0..63 by signed."""
    if v.is_x86(builder) and has_feature("ssse3"):
        return _by_parts(builder, _madd_width(), lambda w, x: _madd(builder, w, x), w, x)
    return _dot(builder, w, x)


def _madd_width() -> int:
    return 32 if has_feature("avx2") else 16


def _abs(builder: Any, w: Any) -> Any:
    """Absolute values; -128 becomes 128 of an unsigned byte."""
    return _call(builder, f"llvm.abs.v{w.type.count}i8", w.type, w, ir.Constant(ir.IntType(1), 0))


def _sign(builder: Any, x: Any, w: Any) -> Any:
    """The bytes of x where w is positive, -x where it is negative, 0 where it is 0."""
    name = "llvm.x86.avx2.psign.b" if w.type.count == 32 else "llvm.x86.ssse3.psign.b.128"
    return _call(builder, name, x.type, x, w)


def _madd(builder: Any, unsigned: Any, signed: Any) -> Any:
    wide = unsigned.type.count == 32
    pairs = ir.VectorType(v.I16, unsigned.type.count // 2)
    name = "llvm.x86.avx2.pmadd.ub.sw" if wide else "llvm.x86.ssse3.pmadd.ub.sw.128"
    products = _call(builder, name, pairs, unsigned, signed)
    name = "llvm.x86.avx2.pmadd.wd" if wide else "llvm.x86.sse2.pmadd.wd"
    return _call(builder, name, ir.VectorType(v.I32, pairs.count // 2), products, ir.Constant(pairs, [1] * pairs.count))


def _arm_dot(builder: Any, w: Any, x: Any) -> Any:
    words = ir.VectorType(v.I32, 4)
    if has_feature("dotprod"):
        return _sdot(builder, ir.Constant(words, [0] * 4), w, x)
    halves = []
    for lanes in (list(range(8)), list(range(8, 16))):
        cut = [v.shuffle(builder, operand, operand, lanes) for operand in (w, x)]
        products = _call(builder, "llvm.aarch64.neon.smull.v8i16", ir.VectorType(v.I16, 8), *cut)
        halves.append(_call(builder, "llvm.aarch64.neon.saddlp.v4i32.v8i16", words, products))
    return _call(builder, "llvm.aarch64.neon.addp.v4i32", words, *halves)


def _sdot(builder: Any, start: Any, w: Any, x: Any) -> Any:
    return _call(builder, "llvm.aarch64.neon.sdot.v4i32.v16i8", start.type, start, w, x)


def _plain_dot(builder: Any, w: Any, x: Any) -> Any:
    w, x = builder.bitcast(w, v.INTS), builder.bitcast(x, v.INTS)
    total = v.splat_int(0)
    for byte in range(4):
        up, down = v.splat_int(24 - 8 * byte), v.splat_int(24)
        parts = [builder.ashr(builder.shl(words, up), down) for words in (w, x)]
        total = builder.add(total, builder.mul(*parts))
    return total
