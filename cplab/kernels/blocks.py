"""Norms, RoPE, softmax and SwiGLU over blocks of 16 float32 at integer addresses, bit-equal to `cplab.arithmetic`.

A vector of n elements is ``n / 16`` blocks; ``*_step`` is the distance in bytes from a block to the next: 64 where it
lies contiguous, ``T * 64`` for a token of a panel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from cplab.jit import intrinsic, jit
from cplab.kernels import vectors as v


def _at(builder: Any, base: Any, step: Any, index: Any) -> Any:
    return builder.add(base, builder.mul(step, index))


def _nothing(arity: int, emit: Callable[..., None]) -> Any:
    """Signature and generator of an intrinsic that takes int64s and returns nothing."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        emit(builder, *args)
        return context.get_dummy_value()

    return types.none(*([types.int64] * arity)), generate


@intrinsic
def dot(typingctx: Any, a: Any, a_step: Any, b: Any, b_step: Any, blocks: Any) -> Any:
    """Canonical dot product of two float32 vectors of ``blocks`` blocks."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, a_step, b, b_step, blocks = args
        acc = cgutils.alloca_once(builder, v.VECTOR)
        builder.store(v.splat(0.0), acc)
        with v.counted(builder, blocks) as k:
            left = v.load(builder, _at(builder, a, a_step, k))
            right = v.load(builder, _at(builder, b, b_step, k))
            builder.store(v.fma(builder, left, right, builder.load(acc)), acc)
        return v.tree_sum(builder, builder.load(acc))

    return types.float32(*([types.int64] * 5)), generate


@intrinsic
def scale(typingctx: Any, x: Any, x_step: Any, weight: Any, y: Any, y_step: Any, blocks: Any, r: Any) -> Any:
    """``y = (x * r) * weight``, the second half of RMSNorm; ``weight`` lies contiguous."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, x_step, weight, y, y_step, blocks, r = args
        r = v.spread(builder, r)
        with v.counted(builder, blocks) as k:
            scaled = builder.fmul(v.load(builder, _at(builder, x, x_step, k)), r)
            gain = v.load(builder, _at(builder, weight, v.i64(64), k))
            v.store(builder, builder.fmul(scaled, gain), _at(builder, y, y_step, k))
        return context.get_dummy_value()

    return types.none(*([types.int64] * 6), types.float32), generate


@intrinsic
def add(typingctx: Any, x: Any, x_step: Any, y: Any, y_step: Any, blocks: Any) -> Any:
    """``x += y``."""

    def emit(builder: Any, x: Any, x_step: Any, y: Any, y_step: Any, blocks: Any) -> None:
        with v.counted(builder, blocks) as k:
            at = _at(builder, x, x_step, k)
            total = builder.fadd(v.load(builder, at), v.load(builder, _at(builder, y, y_step, k)))
            v.store(builder, total, at)

    return _nothing(5, emit)


@intrinsic
def copy(typingctx: Any, x: Any, x_step: Any, y: Any, y_step: Any, blocks: Any) -> Any:
    """``y = x``."""

    def emit(builder: Any, x: Any, x_step: Any, y: Any, y_step: Any, blocks: Any) -> None:
        with v.counted(builder, blocks) as k:
            v.store(builder, v.load(builder, _at(builder, x, x_step, k)), _at(builder, y, y_step, k))

    return _nothing(5, emit)


@intrinsic
def decode(typingctx: Any, code: Any, x: Any, y: Any, y_step: Any, blocks: Any) -> Any:
    """``blocks`` blocks of weights of a format, contiguous at ``x``, as float32 at ``y``."""

    def emit(builder: Any, code: Any, x: Any, y: Any, y_step: Any, blocks: Any) -> None:
        done = builder.append_basic_block("done")
        choice = builder.switch(code, done)
        for known, size in v.BYTES_PER_16.items():
            block = builder.append_basic_block(f"format{known}")
            choice.add_case(ir.Constant(v.I64, known), block)
            builder.position_at_end(block)
            with v.counted(builder, blocks) as k:
                values = v.decode_16(builder, known, _at(builder, x, v.i64(size), k))
                v.store(builder, values, _at(builder, y, y_step, k))
            builder.branch(done)
        builder.position_at_end(done)

    return _nothing(5, emit)


@intrinsic
def rotate(typingctx: Any, x: Any, cos: Any, sin: Any, half_blocks: Any) -> Any:
    """RoPE in place on a contiguous head of ``2 * half_blocks`` blocks; every product and sum is rounded."""

    def emit(builder: Any, x: Any, cos: Any, sin: Any, half_blocks: Any) -> None:
        second = builder.add(x, builder.shl(half_blocks, v.i64(6)))
        with v.counted(builder, half_blocks) as k:
            at_a, at_b = _at(builder, x, v.i64(64), k), _at(builder, second, v.i64(64), k)
            a, b = v.load(builder, at_a), v.load(builder, at_b)
            c, s = v.load(builder, _at(builder, cos, v.i64(64), k)), v.load(builder, _at(builder, sin, v.i64(64), k))
            v.store(builder, builder.fsub(builder.fmul(a, c), builder.fmul(b, s)), at_a)
            v.store(builder, builder.fadd(builder.fmul(b, c), builder.fmul(a, s)), at_b)

    return _nothing(4, emit)


@intrinsic
def exp_minus(typingctx: Any, x: Any, blocks: Any, largest: Any) -> Any:
    """``x = exp(x - largest)`` in place."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, blocks, largest = args
        largest = v.spread(builder, largest)
        with v.counted(builder, blocks) as k:
            at = _at(builder, x, v.i64(64), k)
            v.store(builder, v.exp(builder, builder.fsub(v.load(builder, at), largest)), at)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.float32), generate


@intrinsic
def weighted_sum(typingctx: Any, p: Any, count: Any, V: Any, V_step: Any, y: Any, y_step: Any, blocks: Any) -> Any:
    """``y = sum over j of p[j] * V[j]``: for each element an ascending chain of fma from +0.

    ``p [count]`` float32 contiguous; row j of ``V`` is contiguous at ``V + j * V_step``.
    """

    def emit(builder: Any, p: Any, count: Any, V: Any, V_step: Any, y: Any, y_step: Any, blocks: Any) -> None:
        acc = cgutils.alloca_once(builder, v.VECTOR)
        with v.counted(builder, blocks) as k:
            builder.store(v.splat(0.0), acc)
            column = _at(builder, V, v.i64(64), k)
            with v.counted(builder, count) as j:
                weight = v.spread(builder, v.load(builder, _at(builder, p, v.i64(4), j), v.FLOAT))
                value = v.load(builder, _at(builder, column, V_step, j))
                builder.store(v.fma(builder, weight, value, builder.load(acc)), acc)
            v.store(builder, builder.load(acc), _at(builder, y, y_step, k))

    return _nothing(7, emit)


@intrinsic
def swiglu(typingctx: Any, gate: Any, up: Any, y: Any, blocks: Any) -> Any:
    """``y = gate / (1 + exp(-gate)) * up``, all contiguous."""

    def emit(builder: Any, gate: Any, up: Any, y: Any, blocks: Any) -> None:
        with v.counted(builder, blocks) as k:
            g = v.load(builder, _at(builder, gate, v.i64(64), k))
            u = v.load(builder, _at(builder, up, v.i64(64), k))
            silu = builder.fdiv(g, builder.fadd(v.splat(1.0), v.exp(builder, builder.fneg(g))))
            v.store(builder, builder.fmul(silu, u), _at(builder, y, v.i64(64), k))

    return _nothing(4, emit)


@intrinsic
def read_f32(typingctx: Any, address: Any) -> Any:
    """The float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return v.load(builder, args[0], v.FLOAT)

    return types.float32(types.int64), generate


@intrinsic
def write_f32(typingctx: Any, address: Any, value: Any) -> Any:
    """Write a float32 to an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v.store(builder, args[1], args[0])
        return context.get_dummy_value()

    return types.none(types.int64, types.float32), generate


@intrinsic
def bits_at(typingctx: Any, address: Any) -> Any:
    """The int32 bits of the float32 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return v.load(builder, args[0], v.I32)

    return types.int32(types.int64), generate


@intrinsic
def inverse_rms(typingctx: Any, total: Any, n: Any, eps: Any) -> Any:
    """``1 / sqrt(total / n + eps)`` in float32, each step rounded."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, n, eps = args
        mean = builder.fdiv(total, builder.sitofp(n, v.FLOAT))
        sqrt = builder.module.declare_intrinsic("llvm.sqrt", [v.FLOAT], ir.FunctionType(v.FLOAT, [v.FLOAT]))
        return builder.fdiv(ir.Constant(v.FLOAT, 1.0), builder.call(sqrt, [builder.fadd(mean, eps)]))

    return types.float32(types.float32, types.int64, types.float32), generate


@jit()
def rms_norm(x: int, x_step: int, weight: int, y: int, y_step: int, blocks: int, eps: float) -> None:
    """Canonical RMSNorm of ``blocks`` blocks at ``x`` into ``y``."""
    r = inverse_rms(dot(x, x_step, x, x_step, blocks), blocks * 16, eps)
    scale(x, x_step, weight, y, y_step, blocks, r)


@jit()
def argmax(logits: int, count: int) -> int:
    """Lowest index among the largest of ``count`` float32; -1 where one of them is NaN or infinite."""
    best = 0
    top = read_f32(logits)
    finite = True
    for k in range(count):
        value = read_f32(logits + 4 * k)
        finite &= (bits_at(logits + 4 * k) & 0x7F800000) != 0x7F800000
        if value > top:
            top = value
            best = k
    return best if finite else -1
