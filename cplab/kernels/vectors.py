"""LLVM building blocks over 16 float32 lanes. Everything here runs at compile time and emits instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from cplab import constants
from cplab.formats import FORMATS
from cplab.jit import has_feature

LANES = constants.LANES
FLOAT = ir.FloatType()
HALF = ir.HalfType()
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
INTS = ir.VectorType(I32, LANES)

F32_CODE, BF16_CODE, F16_CODE, BF12_CODE = (FORMATS[name].code for name in ("f32", "bf16", "f16", "bf12"))
#: Bytes that 16 weights take, by format code.
BYTES_PER_16 = {F32_CODE: 64, BF16_CODE: 32, F16_CODE: 32}
CACHE_LINE = 64


def is_x86(builder: Any) -> bool:
    """Whether the code that is being emitted is for x86."""
    return str(builder.module.triple).startswith(("x86_64", "i686"))


def is_arm64(builder: Any) -> bool:
    """Whether the code that is being emitted is for 64-bit Arm."""
    return str(builder.module.triple).startswith(("aarch64", "arm64"))


def i64(value: int) -> Any:
    """An address or count known at compile time."""
    return ir.Constant(I64, value)


def splat(value: float) -> Any:
    """A constant in all lanes."""
    return ir.Constant(VECTOR, [value] * LANES)


def splat_int(value: int) -> Any:
    """An int32 constant in all lanes."""
    return ir.Constant(INTS, [value] * LANES)


def spread(builder: Any, scalar: Any, lanes: int = LANES) -> Any:
    """A scalar of any type in all lanes of a vector."""
    kind = ir.VectorType(scalar.type, lanes)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
    return shuffle(builder, one, one, [0] * lanes)


def load(builder: Any, address: Any, kind: Any = VECTOR, align: int = 4) -> Any:
    """Load a vector from an integer address."""
    value = builder.load(builder.inttoptr(address, ir.PointerType(kind)))
    value.align = align
    return value


def store(builder: Any, value: Any, address: Any, align: int = 4) -> None:
    """Store a vector or scalar to an integer address."""
    builder.store(value, builder.inttoptr(address, ir.PointerType(value.type))).align = align


def shuffle(builder: Any, a: Any, b: Any, lanes: list[int]) -> Any:
    """Lanes of ``a`` and, counted on from its last, of ``b``."""
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, len(lanes)), lanes))


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once, lane by lane."""
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [a, b, c])


def opaque(builder: Any, value: Any) -> Any:
    """The same int64, of which the optimiser knows nothing.

    Where a loop's bounds can be followed through several divisions, LLVM gives up strength reduction in it, and its
    vectors end up on the stack.
    """
    return builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [value], False)


def prefetch(builder: Any, address: Any) -> None:
    """Ask for a cache line to be read, for reading, into all levels; never faults."""
    kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(I8), I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    hints = [ir.Constant(I32, 0), ir.Constant(I32, 3), ir.Constant(I32, 1)]
    builder.call(function, [builder.inttoptr(address, ir.PointerType(I8)), *hints])


def decode_16(builder: Any, code: int, address: Any) -> Any:
    """Sixteen weights of a format at ``address`` as float32 lanes; exact for every format."""
    if code == F32_CODE:
        return load(builder, address)
    if code == BF16_CODE:
        raw = load(builder, address, ir.VectorType(I16, LANES), align=2)
        return builder.bitcast(builder.shl(builder.zext(raw, INTS), splat_int(16)), VECTOR)
    if code == F16_CODE:
        return _decode_f16(builder, address)
    raise NotImplementedError(f"no decoder for format code {code}")


def decode_half(builder: Any, code: int, address: Any, half: int) -> Any:
    """The first or second 16 of 32 weights as matrices stream them (`cplab.kernels.packing.streamed`).

    BF16 has the two halves in turn, so that a word holds one weight of each: a shift and a mask decode both, where
    widening takes a shuffle and a shift for each.
    """
    if code == BF16_CODE:
        return half_of_bf16(builder, load(builder, address, INTS, align=2), half)
    return decode_16(builder, code, builder.add(address, i64(half * BYTES_PER_16[code])))


def half_of_bf16(builder: Any, words: Any, half: int) -> Any:
    """The first or second 16 of 32 BF16 weights, the two halves in turn, from int32 lanes that hold one of each."""
    words = builder.and_(words, splat_int(-0x10000)) if half else builder.shl(words, splat_int(16))
    return builder.bitcast(words, VECTOR)


def _decode_f16(builder: Any, address: Any) -> Any:
    return widen_f16(builder, load(builder, address, ir.VectorType(I16, LANES), align=2))


def widen_f16(builder: Any, raw: Any) -> Any:
    """Sixteen halves, given as int16 lanes, as float32 lanes; exact."""
    if not is_x86(builder) or has_feature("f16c") or has_feature("avx512f"):
        return builder.fpext(builder.bitcast(raw, ir.VectorType(HALF, LANES)), VECTOR)
    # Without an instruction for it LLVM would call a library that is not there. Widened by hand: the 15 lower bits
    # moved up are the value times 2**-112, subnormals included, and multiplying by 2**112 is exact.
    bits = builder.zext(raw, INTS)
    magnitude = builder.shl(builder.and_(bits, splat_int(0x7FFF)), splat_int(13))
    value = builder.bitcast(builder.fmul(builder.bitcast(magnitude, VECTOR), splat(2.0**112)), INTS)
    special = builder.icmp_unsigned(">=", magnitude, splat_int(0x7C00 << 13))
    value = builder.select(special, builder.or_(magnitude, splat_int(0x7F800000)), value)
    sign = builder.shl(builder.and_(bits, splat_int(0x8000)), splat_int(16))
    return builder.bitcast(builder.or_(value, sign), VECTOR)


def tree_sum(builder: Any, lanes: Any) -> Any:
    """The canonical sum of 16 lanes: j + (j + 8), then + 4, + 2, + 1."""
    width = LANES
    while width > 1:
        width //= 2
        low = shuffle(builder, lanes, lanes, list(range(width)))
        high = shuffle(builder, lanes, lanes, list(range(width, 2 * width)))
        lanes = builder.fadd(low, high)
    return builder.extract_element(lanes, ir.Constant(I32, 0))


def tree_sums(builder: Any, rows: list[Any], lane_of: list[int]) -> Any:
    """The canonical sums of 16 vectors, side by side: 15 additions for what `tree_sum` takes 64 for.

    Each level packs the halves of two vectors into one, so that one addition serves both; every sum keeps its own
    tree. ``lane_of[j]`` is where the canonical lane j stands in the vectors.
    """
    width = LANES // 2
    low, high = lane_of[:width], lane_of[width:]
    while len(rows) > 1:
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [
            builder.fadd(
                shuffle(builder, a, b, low + [LANES + lane for lane in low]),
                shuffle(builder, a, b, high + [LANES + lane for lane in high]),
            )
            for a, b in pairs
        ]
        # From here on a vector is made of runs of `width` lanes, one run for each of the rows in it.
        runs = [range(at, at + width) for at in range(0, LANES, width)]
        width //= 2
        low, high = ([lane for run in runs for lane in run[part]] for part in (slice(0, width), slice(width, None)))
    return rows[0]


@contextmanager
def counted(builder: Any, count: Any, *, start: Any = None) -> Iterator[Any]:
    """Emit a loop over start (0 where it is not given) .. count - 1 (i64)."""
    with cgutils.for_range(builder, count, start=start, intp=I64) as loop:
        yield loop.index


@contextmanager
def repeated(builder: Any, holds: Callable[[], Any]) -> Iterator[None]:
    """Emit a loop that runs while what ``holds`` emits (i1) is true."""
    check, body, done = (builder.append_basic_block(f"while.{name}") for name in ("check", "body", "done"))
    builder.branch(check)
    builder.position_at_end(check)
    builder.cbranch(holds(), body, done)
    builder.position_at_end(body)
    yield
    builder.branch(check)
    builder.position_at_end(done)


def exp(builder: Any, x: Any) -> Any:
    """The canonical exp, lane by lane: see `cplab.arithmetic.exp` for the rule and `constants` for the numbers."""
    magic = splat(constants.ROUND_MAGIC)
    rounded = fma(builder, x, splat(constants.LOG2_E), magic)
    n = builder.sub(builder.bitcast(rounded, INTS), builder.bitcast(magic, INTS))
    minus_n = builder.fneg(builder.fsub(rounded, magic))
    r = fma(builder, minus_n, splat(constants.LN2_HIGH), x)
    r = fma(builder, minus_n, splat(constants.LN2_LOW), r)
    first, second, *rest = constants.EXP_POLYNOMIAL
    p = fma(builder, splat(first), r, splat(second))
    for coefficient in rest:
        p = fma(builder, p, r, splat(coefficient))
    half = builder.ashr(n, splat_int(1))
    for part in (half, builder.sub(n, half)):
        power = builder.shl(builder.add(part, splat_int(127)), splat_int(23))
        p = builder.fmul(p, builder.bitcast(power, VECTOR))
    too_high = builder.fcmp_ordered(">", x, splat(constants.EXP_HIGH))
    p = builder.select(too_high, splat(float("inf")), p)
    too_low = builder.fcmp_ordered("<", x, splat(constants.EXP_LOW))
    return builder.select(too_low, splat(0.0), p)


def log(builder: Any, x: Any) -> Any:
    """The canonical logarithm, lane by lane: see `cplab.arithmetic.log` for the rule."""
    zero, infinity = splat(0.0), splat(float("inf"))
    small = builder.fcmp_ordered("<", x, splat(2.0**-126))
    bits = builder.bitcast(builder.select(small, builder.fmul(x, splat(2.0**23)), x), INTS)
    power = builder.ashr(builder.sub(bits, splat_int(constants.SQRT_HALF_BITS)), splat_int(23))
    m = builder.bitcast(builder.sub(bits, builder.shl(power, splat_int(23))), VECTOR)
    f = builder.fsub(m, splat(1.0))
    exponent = builder.add(power, builder.select(small, splat_int(-23), splat_int(0)))
    n = builder.sitofp(exponent, VECTOR)
    first, *rest = constants.LOG_POLYNOMIAL
    p = splat(first)
    for coefficient in (*rest, -0.5):
        p = fma(builder, p, f, splat(coefficient))
    tail = fma(builder, builder.fmul(f, f), p, builder.fmul(n, splat(constants.LN2_LOW)))
    y = fma(builder, n, splat(constants.LN2_HIGH), builder.fadd(f, tail))
    y = builder.select(builder.fcmp_ordered("==", x, infinity), infinity, y)
    y = builder.select(builder.fcmp_ordered("==", x, zero), splat(float("-inf")), y)
    return builder.select(builder.fcmp_ordered(">=", x, zero), y, splat(float("nan")))
