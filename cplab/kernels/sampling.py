"""Drawing a code from logits, bit-equal to `cplab.arithmetic_sampling`, in another way.

The law sorts all logits; here nothing is sorted unless ``top_p`` asks for it. A scaled logit becomes an integer that
orders as it does; the k-th largest is found by bisection on its value, counting 16 at a time how many reach the middle,
and one more sweep lists the codes at or above it. Noise is made for those that are left only: the generator is indexed,
so what is not needed is never drawn.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import carray, types
from numba.core import cgutils

from cplab.jit import entry, intrinsic, jit
from cplab.kernels import blocks, memory
from cplab.kernels import plan as p
from cplab.kernels import vectors as v
from cplab.kernels.gumbel import gumbel
from cplab.kernels.layout import private
from cplab.kernels.memory import read_i32, write_i32

#: The work space: the drawn code, alone in a cache line, then arrays of the vocabulary's length, then counters.
KEYS, SCALED, CODES, SPARE, VALUES, ARRAYS = range(6)
_LINE = 64
_DIGITS = 256
_ABSOLUTE, _EXPONENT = 0x7FFFFFFF, 0x7F800000
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1


def work_bytes(vocab: int) -> int:
    """Bytes of a member's work space."""
    return _LINE + 4 * vocab * ARRAYS + 4 * _DIGITS


def _counters(builder: Any) -> Any:
    """Sixteen int32 counters on the stack, from 0."""
    counters = cgutils.alloca_once(builder, v.INTS)
    builder.store(v.splat_int(0), counters)
    return counters


def _sum(builder: Any, lanes: Any) -> Any:
    """The sum of 16 int32 lanes, as int64."""
    kind = ir.FunctionType(v.I32, [v.INTS])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.add.v{v.LANES}i32")
    return builder.sext(builder.call(function, [lanes]), v.I64)


@intrinsic
def scale_and_order(typingctx: Any, logits: Any, temperature: Any, scaled: Any, keys: Any, blocks: Any) -> Any:
    """``scaled = logits / temperature`` and, as int32, ``keys`` that order alike; how many are NaN or infinite."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        logits, temperature, scaled, keys, blocks = args
        temperature = v.spread(builder, temperature)
        bad = _counters(builder)
        with v.counted(builder, blocks) as k:
            start = builder.mul(v.i64(64), k)
            s = builder.fdiv(v.load(builder, builder.add(logits, start)), temperature)
            v.store(builder, s, builder.add(scaled, start))
            # Adding +0 makes -0 a +0 and changes nothing else: the two are equal, and their keys must be.
            bits = builder.bitcast(builder.fadd(s, v.splat(0.0)), v.INTS)
            exponent = builder.and_(bits, v.splat_int(_EXPONENT))
            special = builder.icmp_signed("==", exponent, v.splat_int(_EXPONENT))
            builder.store(builder.sub(builder.load(bad), builder.sext(special, v.INTS)), bad)
            flipped = builder.and_(builder.ashr(bits, v.splat_int(31)), v.splat_int(_ABSOLUTE))
            v.store(builder, builder.xor(bits, flipped), builder.add(keys, start))
        return _sum(builder, builder.load(bad))

    return types.int64(types.int64, types.float32, *([types.int64] * 3)), generate


@intrinsic
def count_from(typingctx: Any, keys: Any, blocks: Any, least: Any) -> Any:
    """How many of ``blocks * 16`` int32 keys are ``least`` or more."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        keys, blocks, least = args
        least = v.spread(builder, builder.trunc(least, v.I32))
        total = _counters(builder)
        with v.counted(builder, blocks) as k:
            found = v.load(builder, builder.add(keys, builder.mul(v.i64(64), k)), v.INTS)
            reached = builder.sext(builder.icmp_signed(">=", found, least), v.INTS)
            builder.store(builder.sub(builder.load(total), reached), total)
        return _sum(builder, builder.load(total))

    return types.int64(*([types.int64] * 3)), generate


@jit()
def edge(keys: int, count: int, k: int) -> int:
    """The largest key that at least ``k`` of ``count`` keys reach; any with exactly k is as good."""
    low, high = _LOWEST, _HIGHEST
    while low < high:
        middle = low + (high - low + 1) // 2
        reached = count_from(keys, count // 16, middle)
        if reached == k:
            return middle
        if reached > k:
            low = middle
        else:
            high = middle - 1
    return low


@jit()
def list_largest(keys: int, count: int, k: int, codes: int) -> None:
    """The codes of the k largest keys, ascending, at ``codes``; of those that equal the last, the lowest."""
    least = edge(keys, count, k)
    equals = k - (count_from(keys, count // 16, least + 1) if least < _HIGHEST else 0)
    n = 0
    for block in range(count // 16):
        if count_from(keys + 64 * block, 1, least) == 0:
            continue
        for code in range(16 * block, 16 * block + 16):
            key = read_i32(keys + 4 * code)
            if key > least or (key == least and equals > 0):
                equals -= key == least
                write_i32(codes + 4 * n, code)
                n += 1


@jit()
def sort_descending(codes: int, n: int, keys: int, spare: int, counters: int) -> None:
    """Sort ``n`` codes by their keys, largest first, stably: four passes of a radix sort, a byte each."""
    for shift in range(0, 32, 8):
        for digit in range(_DIGITS):
            write_i32(counters + 4 * digit, 0)
        for j in range(n):
            digit = _digit(keys, read_i32(codes + 4 * j), shift)
            write_i32(counters + 4 * digit, read_i32(counters + 4 * digit) + 1)
        start = 0
        for digit in range(_DIGITS):
            here = read_i32(counters + 4 * digit)
            write_i32(counters + 4 * digit, start)
            start += here
        for j in range(n):
            code = read_i32(codes + 4 * j)
            digit = _digit(keys, code, shift)
            to = read_i32(counters + 4 * digit)
            write_i32(counters + 4 * digit, to + 1)
            write_i32(spare + 4 * to, code)
        codes, spare = spare, codes


@jit()
def _digit(keys: int, code: int, shift: int) -> int:
    return ((_HIGHEST - read_i32(keys + 4 * code)) >> shift) & (_DIGITS - 1)


@jit()
def nucleus(codes: int, n: int, scaled: int, values: int, top_p: float) -> int:
    """How many of ``n`` codes, best first, ``top_p`` leaves."""
    for j in range(n):
        blocks.write_f32(values + 4 * j, blocks.read_f32(scaled + 4 * read_i32(codes + 4 * j)))
    blocks.exp_minus(values, (n + 15) // 16, blocks.read_f32(values))
    total = blocks.read_f32(values)
    for j in range(1, n):
        total = total + blocks.read_f32(values + 4 * j)
    before = blocks.read_f32(values) / total
    for j in range(1, n):
        if before >= top_p:
            return j
        before = before + blocks.read_f32(values + 4 * j) / total
    return n


@jit()
def best(codes: int, n: int, scaled: int, noise: int, by_code: bool) -> int:
    """The code whose ``scaled + noise`` is largest, lowest among equals; noise lies by code or by place in the list."""
    winner = read_i32(codes)
    largest = blocks.read_f32(scaled + 4 * winner) + blocks.read_f32(noise + 4 * (winner if by_code else 0))
    for j in range(1, n):
        code = read_i32(codes + 4 * j)
        value = blocks.read_f32(scaled + 4 * code) + blocks.read_f32(noise + 4 * (code if by_code else j))
        if value > largest or (value == largest and code < winner):
            winner, largest = code, value
    return winner


@jit()
def drawn(plan: Any, b: int, g: int, work: int) -> int:
    """The code drawn in pass ``g`` of sequence ``b``, or -1; ``work`` is the address of `work_bytes` bytes."""
    vocab, k = plan[p.VOCAB], plan[p.TOP_K]
    at = b * plan[p.PASSES] + g
    size = 4 * vocab
    arrays = work + _LINE
    keys, scaled, codes = arrays + KEYS * size, arrays + SCALED * size, arrays + CODES * size
    spare, values, counters = arrays + SPARE * size, arrays + VALUES * size, arrays + ARRAYS * size
    temperature, top_p = blocks.read_f32(plan[p.SAMPLING]), blocks.read_f32(plan[p.SAMPLING] + 4)
    if scale_and_order(plan[p.LOGITS] + at * size, temperature, scaled, keys, vocab // 16):
        return -1
    if k < vocab:
        list_largest(keys, vocab, k, codes)
    else:
        for code in range(vocab):
            write_i32(codes + 4 * code, code)
    if top_p < 1:
        sort_descending(codes, k, keys, spare, counters)
        k = nucleus(codes, k, scaled, values, top_p)
    if plan[p.NOISE]:
        return best(codes, k, scaled, plan[p.NOISE] + at * size, True)
    seed, frame = memory.read_i64(plan[p.SEEDS] + 8 * b), memory.read_i64(plan[p.FRAMES] + 8 * b)
    gumbel(seed, frame, g + 1, codes, values, (k + 15) // 16)
    return best(codes, k, scaled, values, False)


@entry(types.void(types.CPointer(types.int64), *([types.int64] * 3)))
def draw(address: Any, b: int, g: int, m: int) -> None:
    """Member m draws a code of the plan at an address, into the first word of its work space."""
    plan = carray(address, (p.SIZE,))
    work = private(plan, m) + plan[p.DRAWING_AT]
    write_i32(work, drawn(plan, b, g, work))
