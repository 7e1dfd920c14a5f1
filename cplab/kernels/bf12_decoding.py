"""Decoding packed BF16 (`cplab.formats.bf12`) in registers: a table lookup of bytes, then lower and upper interleaved.

An exception takes its place by a comparison of all places with its own, which every SIMD set has, so that it is mended
in registers too: a word stored into what was decoded, and read back in vectors, would be waited for.

=============  ============================================
AVX-512BW      vpshufb and vpunpck over 64 bytes
AVX2           the same over 32
SSSE3          the same over 16
64-bit Arm     tbl, zip1 and zip2
anything else  the upper byte by masks, shifts and additions
=============  ============================================
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cplab.formats import bf12
from cplab.jit import has_feature
from cplab.kernels import vectors as v

_BYTES = ir.VectorType(v.I8, bf12.STEP)
_CODES = ir.VectorType(v.I8, bf12.STEP // 2)
_TABLE = ir.VectorType(v.I8, 16)
_WORDS = ir.VectorType(v.I16, bf12.STEP // 2)
#: Upper bytes of the 16 codes over base 0.
_ENTRIES = [*range(8), *range(-128, -120)]


def table(builder: Any, base: Any) -> Any:
    """Upper bytes of the 16 codes over a base (i8)."""
    return builder.add(ir.Constant(_TABLE, _ENTRIES), v.spread(builder, base))


def decoded(builder: Any, address: Any, entries: Any) -> list[Any]:
    """64 words, as two vectors of 32 (i16), of 96 bytes at ``address``, by a row's `table`."""
    low = v.load(builder, address, _BYTES, align=1)
    codes = v.load(builder, builder.add(address, v.i64(bf12.STEP)), _CODES, align=1)
    lower = builder.and_(codes, _all(_CODES, 15))
    higher = builder.lshr(codes, _all(_CODES, 4))
    upper = _looked_up(builder, entries, v.shuffle(builder, lower, higher, list(range(bf12.STEP))))
    words = []
    for half in range(2):
        lanes = [16 * q + 8 * half + i for q in range(4) for i in range(8)]  # as `bf12_units.ORDER` has them
        pairs = [place for lane in lanes for place in (lane, bf12.STEP + lane)]
        words.append(builder.bitcast(v.shuffle(builder, low, upper, pairs), _WORDS))
    return words


def mended(builder: Any, words: list[Any], place: Any, word: Any) -> list[Any]:
    """The words of a step with ``word`` at ``place`` (i16 both); a place from 64 on is none."""
    wanted = v.spread(builder, place, _WORDS.count)
    new = v.spread(builder, word, _WORDS.count)
    places = [ir.Constant(_WORDS, [_WORDS.count * half + lane for lane in range(_WORDS.count)]) for half in range(2)]
    return [
        builder.select(builder.icmp_unsigned("==", wanted, own), new, old)
        for own, old in zip(places, words, strict=True)
    ]


def _all(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def _looked_up(builder: Any, entries: Any, code: Any) -> Any:
    """Entries of a table of 16 bytes by 64 codes from 0 to 15."""
    if v.is_arm64(builder):
        return _by_parts(builder, 16, "llvm.aarch64.neon.tbl1.v16i8", entries, code)
    if v.is_x86(builder) and has_feature("avx512bw"):
        return _by_parts(builder, 64, "llvm.x86.avx512.pshuf.b.512", entries, code)
    if v.is_x86(builder) and has_feature("avx2"):
        return _by_parts(builder, 32, "llvm.x86.avx2.pshuf.b", entries, code)
    if v.is_x86(builder) and has_feature("ssse3"):
        return _by_parts(builder, 16, "llvm.x86.ssse3.pshuf.b.128", entries, code)
    base = v.shuffle(builder, entries, entries, [0] * bf12.STEP)
    pair = builder.add(builder.and_(code, _all(_BYTES, 7)), base)
    return builder.or_(pair, builder.shl(builder.and_(code, _all(_BYTES, 8)), _all(_BYTES, 4)))


def _by_parts(builder: Any, width: int, name: str, entries: Any, code: Any) -> Any:
    """Look up by an instruction over ``width`` bytes, which wants the table in each 16 of them."""
    kind = ir.VectorType(v.I8, width)
    lookup = cgutils.get_or_insert_function(builder.module, ir.FunctionType(kind, [kind, kind]), name)
    wide = v.shuffle(builder, entries, entries, list(range(16)) * (width // 16))
    parts = []
    for first in range(0, bf12.STEP, width):
        part = v.shuffle(builder, code, code, list(range(first, first + width)))
        parts.append(builder.call(lookup, [wide, part]))
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [v.shuffle(builder, a, b, list(range(2 * a.type.count))) for a, b in pairs]
    return parts[0]
