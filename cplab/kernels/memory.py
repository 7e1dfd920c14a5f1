"""Integers at addresses: what compiled code reads of tables and writes of results."""

from __future__ import annotations

from typing import Any

from numba import types

from cplab.jit import intrinsic
from cplab.kernels import vectors as v


@intrinsic
def read_i64(typingctx: Any, address: Any) -> Any:
    """The int64 at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return v.load(builder, args[0], v.I64, align=8)

    return types.int64(types.int64), generate


@intrinsic
def read_i32(typingctx: Any, address: Any) -> Any:
    """The int32 at an address, as int64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.sext(v.load(builder, args[0], v.I32), v.I64)

    return types.int64(types.int64), generate


@intrinsic
def write_i64(typingctx: Any, address: Any, value: Any) -> Any:
    """Write an int64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v.store(builder, args[1], args[0], align=8)
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate


@intrinsic
def write_i32(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the lower half of an int64 to an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v.store(builder, builder.trunc(args[1], v.I32), args[0])
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), generate
