"""What a thread team needs of the machine: atomics, a pause, a yield, a clock, the floating-point mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from cplab.jit import intrinsic, jit
from cplab.kernels import vectors as v

#: Give the rest of the time slice to another thread (POSIX).
sched_yield = types.ExternalFunction("sched_yield", types.int32())
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.intp))


def _pointer(builder: Any, address: Any, kind: Any = v.I64) -> Any:
    return builder.inttoptr(address, ir.PointerType(kind))


@intrinsic
def atomic_add(typingctx: Any, address: Any, amount: Any) -> Any:
    """Add to the int64 at an address, sequentially consistent; returns what was there before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def atomic_min(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the smaller of ``value`` and the int64 at an address there; returns what was there before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("min", _pointer(builder, args[0]), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), generate


@intrinsic
def atomic_swap_if(typingctx: Any, address: Any, expected: Any, value: Any) -> Any:
    """Write ``value`` where the int64 at an address is ``expected``; returns what was there before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pair = builder.cmpxchg(_pointer(builder, args[0]), args[1], args[2], "seq_cst", "seq_cst")
        return builder.extract_value(pair, 0)

    return types.int64(types.int64, types.int64, types.int64), generate


@intrinsic
def atomic_read(typingctx: Any, address: Any) -> Any:
    """The int64 at an address; everything written before its release is seen after."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), "acquire", 8)

    return types.int64(types.int64), generate


@intrinsic
def atomic_write(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the int64 at an address, after everything written before it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the core that this is a spin loop."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if v.is_x86(builder):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif v.is_arm64(builder):
            kind = ir.FunctionType(ir.VoidType(), [v.I32])
            hint = cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [ir.Constant(v.I32, 1)])
        return context.get_dummy_value()

    return types.none(), generate


@intrinsic
def get_float_mode(typingctx: Any) -> Any:
    """This thread's MXCSR (x86) or FPCR (arm64) as int64; 0 elsewhere."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if v.is_x86(builder):
            slot = cgutils.alloca_once(builder, v.I32)
            kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(v.I32)])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.stmxcsr"), [slot])
            return builder.zext(builder.load(slot), v.I64)
        if v.is_arm64(builder):
            kind = ir.FunctionType(v.I64, [])
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.get.fpcr"), [])
        return ir.Constant(v.I64, 0)

    return types.int64(), generate


@intrinsic
def set_float_mode(typingctx: Any, mode: Any) -> Any:
    """Set this thread's MXCSR or FPCR."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if v.is_x86(builder):
            slot = cgutils.alloca_once(builder, v.I32)
            builder.store(builder.trunc(args[0], v.I32), slot)
            kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(v.I32)])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse.ldmxcsr"), [slot])
        elif v.is_arm64(builder):
            kind = ir.FunctionType(ir.VoidType(), [v.I64])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.aarch64.set.fpcr"), [args[0]])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def default_float_mode(typingctx: Any) -> Any:
    """The mode in which the canonical arithmetic is defined: round to nearest even, subnormals kept, no traps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(v.I64, 0x1F80 if v.is_x86(builder) else 0)

    return types.int64(), generate


@intrinsic
def flushing_float_mode(typingctx: Any) -> Any:
    """The default mode with flush-to-zero (and denormals-are-zero) on top: what some callers set for speed."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return ir.Constant(v.I64, 0x9FC0 if v.is_x86(builder) else 1 << 24)

    return types.int64(), generate


@jit()
def now_ns(clock: int, scratch: int) -> int:
    """Nanoseconds of a POSIX clock; ``scratch`` is the address of two int64 to write to."""
    _clock_gettime(clock, scratch)
    return atomic_read(scratch) * 1_000_000_000 + atomic_read(scratch + 8)


@jit()
def _flush_on() -> int:
    before = get_float_mode()
    set_float_mode(flushing_float_mode())
    return before


@jit()
def _restore(mode: int) -> None:
    set_float_mode(mode)


@contextmanager
def flush_to_zero() -> Iterator[None]:
    """Flush subnormals on the calling thread, as a careless caller might: for the gate."""
    before = _flush_on()
    try:
        yield
    finally:
        _restore(before)
