"""Decoding packed BF16 (`cplab.formats.bf12`): upper bytes looked up by their codes, then interleaved with the lower.

=============  ============================================
AVX-512 VBMI   vpermb and vpunpck over 64 bytes
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

#: The bytes of a step, one for each weight.
BYTES = ir.VectorType(v.I8, bf12.STEP)
_PACKED = ir.VectorType(v.I8, bf12.STEP // 2)
_TABLE = ir.VectorType(v.I8, 16)
_WORDS = ir.VectorType(v.I16, bf12.STEP // 2)
#: Upper bytes of the 16 codes over base 0, but for that of `bf12.ZERO`.
_ENTRIES = [*range(8), *range(-128, -120)]


def table(builder: Any, base: Any) -> Any:
    """Upper bytes of the 16 codes over a base (i8); that of an exception means nothing."""
    entries = builder.add(ir.Constant(_TABLE, _ENTRIES), v.spread(builder, base))
    return builder.insert_element(entries, v.I8(0), ir.Constant(v.I32, bf12.ZERO))


def decoded(builder: Any, address: Any, entries: Any) -> list[Any]:
    """64 words, two vectors of 32 (i16), of 96 bytes at ``address``, by a row's `table`; exceptions are not right."""
    packed = _load_codes(builder, address)
    lower = builder.and_(packed, every(packed.type, 15))
    higher = builder.lshr(packed, every(packed.type, 4))
    codes = v.shuffle(builder, lower, higher, list(range(bf12.STEP)))
    return interleaved(builder, load_lower(builder, address), _looked_up(builder, entries, codes))


def load_lower(builder: Any, address: Any) -> Any:
    """The lower bytes of the step at ``address``."""
    return v.load(builder, address, BYTES, align=1)


def interleaved(builder: Any, lower: Any, upper: Any) -> list[Any]:
    """Bytes of a step (i8 x 64 both) as words, two vectors of 32 (i16)."""
    words = []
    for half in range(2):
        lanes = [16 * q + 8 * half + i for q in range(4) for i in range(8)]  # as `bf12_units.ORDER` has them
        pairs = [place for lane in lanes for place in (lane, bf12.STEP + lane)]
        words.append(builder.bitcast(v.shuffle(builder, lower, upper, pairs), _WORDS))
    return words


def looked_up_at_once(builder: Any, address: Any, entries: Any) -> tuple[Any, Any]:
    """Upper bytes of the step at ``address``, and which are exceptions (i1 x 64); AVX-512 only.

    Both nibbles of a byte come into their places by one shift of half the lanes. What is left above a nibble is neither
    looked at by a test under a mask, nor by a lookup of six bits in a table that holds its 16 bytes four times.
    """
    packed = _load_codes(builder, address)
    twice = builder.bitcast(v.shuffle(builder, packed, packed, [*range(bf12.STEP // 2)] * 2), _WORDS)
    by = ir.Constant(_WORDS, [0] * (_WORDS.count // 2) + [4] * (_WORDS.count // 2))
    codes = builder.bitcast(builder.lshr(twice, by), BYTES)
    low = builder.and_(codes, every(BYTES, 15))
    is_exception = builder.icmp_unsigned("==", low, every(BYTES, bf12.EXCEPTION))
    if not has_feature("avx512vbmi"):
        return _looked_up(builder, entries, low), is_exception
    kind = ir.FunctionType(BYTES, [BYTES, BYTES])
    lookup = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.permvar.qi.512")
    wide = v.shuffle(builder, entries, entries, [*range(16)] * 4)
    return builder.call(lookup, [wide, codes]), is_exception


def every(kind: Any, value: int) -> Any:
    """A constant in all lanes of a type of vectors."""
    return ir.Constant(kind, [value] * kind.count)


def _load_codes(builder: Any, address: Any) -> Any:
    return v.load(builder, builder.add(address, v.i64(bf12.STEP)), _PACKED, align=1)


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
    pair = builder.add(builder.and_(code, every(BYTES, 7)), base)
    upper = builder.or_(pair, builder.shl(builder.and_(code, every(BYTES, 8)), every(BYTES, 4)))
    is_zero = builder.icmp_unsigned("==", code, every(BYTES, bf12.ZERO))
    return builder.select(is_zero, every(BYTES, 0), upper)


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
