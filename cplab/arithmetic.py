"""The canonical arithmetic, scalar and readable: the law that every exact variant obeys, bit for bit.

All float32, round to nearest even, no contraction but the fma that is written down, no reordering. The vector
kernels repeat these rules in another way and share no code with this file; the gate compares the two.

The rules cost nothing where a frame is a memory-streaming problem, and they buy equality: recompute, KV cache,
batches, any thread count and any CPU give the same bits, because a number's value never depends on who computed it
or what was computed beside it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from cplab import constants
from cplab.jit import intrinsic, jit

_FLOAT = ir.FloatType()
_INT = ir.IntType(32)

_HIGH = np.float32(constants.EXP_HIGH)
_LOW = np.float32(constants.EXP_LOW)
_LOG2_E = np.float32(constants.LOG2_E)
_LN2_HIGH = np.float32(constants.LN2_HIGH)
_LN2_LOW = np.float32(constants.LN2_LOW)
_MAGIC = np.float32(constants.ROUND_MAGIC)
_C7, _C6, _C5, _C4, _C3, _C2, _C1, _C0 = (np.float32(c) for c in constants.EXP_POLYNOMIAL)
_L8, _L7, _L6, _L5, _L4, _L3, _L2, _L1, _L0 = (np.float32(c) for c in constants.LOG_POLYNOMIAL)
_SQRT_HALF_BITS = constants.SQRT_HALF_BITS
_LEAST_NORMAL = np.float32(2.0**-126)
_MANTISSA = np.float32(2.0**23)
_MINUS_HALF = np.float32(-0.5)
_NAN = np.float32(np.nan)
_INF = np.float32(np.inf)
_ZERO = np.float32(0)
_ONE = np.float32(1)
_LANES = constants.LANES


@intrinsic
def fma(typingctx: Any, a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` rounded once (float32 x 3 -> float32); LLVM falls back to libm's fmaf where the CPU has none."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        function = builder.module.declare_intrinsic("llvm.fma", [_FLOAT], ir.FunctionType(_FLOAT, [_FLOAT] * 3))
        return builder.call(function, args)

    return types.float32(types.float32, types.float32, types.float32), generate


@intrinsic
def bits_of(typingctx: Any, x: Any) -> Any:
    """The int32 whose bits are those of the float32 ``x``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _INT)

    return types.int32(types.float32), generate


@intrinsic
def from_bits(typingctx: Any, bits: Any) -> Any:
    """The float32 whose bits are those of the int32 ``bits``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.int32), generate


@jit()
def dot(w: Any, x: Any) -> Any:
    """Dot product of ``w [n]`` and ``x [n]`` float32, n a multiple of 16.

    Lane j takes elements j, j + 16, ... in ascending order with one fma each, from +0; the lanes are then added as a
    tree: j + (j + 8), then + 4, + 2, + 1.
    """
    lanes = np.zeros(_LANES, np.float32)
    for k in range(0, len(w), _LANES):
        for j in range(_LANES):
            lanes[j] = fma(w[k + j], x[k + j], lanes[j])
    width = _LANES
    while width > 1:
        width //= 2
        for j in range(width):
            lanes[j] = lanes[j] + lanes[j + width]
    return lanes[0]


@jit()
def matvec(W: Any, x: Any, y: Any) -> None:
    """``y[r] = dot(W[r], x)`` for ``W [rows, n]``, ``x [n]``, ``y [rows]``."""
    for r in range(W.shape[0]):
        y[r] = dot(W[r], x)


@jit()
def rms_norm(x: Any, weight: Any, eps: Any, y: Any) -> None:
    """RMSNorm of ``x [n]``: ``s = dot(x, x)``, ``r = 1 / sqrt(s / n + eps)``, ``y = (x * r) * weight``."""
    mean = dot(x, x) / np.float32(len(x))
    r = _ONE / np.float32(math.sqrt(np.float32(mean + eps)))
    for k in range(len(x)):
        y[k] = (x[k] * r) * weight[k]


@jit()
def rotate(x: Any, cos: Any, sin: Any) -> None:
    """Rotary embedding in place on ``x [head_dim]``, half-split (NEOX): pairs are (k, k + head_dim / 2).

    Each product and each sum is rounded; ``cos`` and ``sin`` are ``[head_dim / 2]`` for the position.
    """
    half = len(x) // 2
    for k in range(half):
        a = x[k]
        b = x[k + half]
        x[k] = a * cos[k] - b * sin[k]
        x[k + half] = b * cos[k] + a * sin[k]


@jit()
def exp(x: Any) -> Any:
    """e**x in float32, at most 1 ulp off; above 88.72 inf, below -87.33 +0, NaN stays NaN; no libm."""
    rounded = fma(x, _LOG2_E, _MAGIC)
    n = bits_of(rounded) - bits_of(_MAGIC)
    n_float = rounded - _MAGIC
    r = fma(-n_float, _LN2_HIGH, x)
    r = fma(-n_float, _LN2_LOW, r)
    p = fma(_C7, r, _C6)
    p = fma(p, r, _C5)
    p = fma(p, r, _C4)
    p = fma(p, r, _C3)
    p = fma(p, r, _C2)
    p = fma(p, r, _C1)
    p = fma(p, r, _C0)
    # 2**n in two steps: n reaches 128, which no single float32 exponent holds.
    n_half = n >> 1
    y = p * from_bits(np.int32((n_half + 127) << 23))
    y = y * from_bits(np.int32((n - n_half + 127) << 23))
    if x > _HIGH:
        y = _INF
    if x < _LOW:
        y = _ZERO
    return y


@jit()
def log(x: Any) -> Any:
    """Natural logarithm in float32, at most 1 ulp off; -inf of either zero, inf of inf, else NaN; no libm.

    ``x = m * 2**n`` with m from sqrt(1/2) to sqrt(2), and ``f = m - 1``, exactly.
    ``log(m) = f + f**2 * (f * P(f) - 1/2)``, P by fma-Horner; to it comes ``n * ln 2`` in two parts, the lower first.
    """
    n = 0
    normal = x
    if x < _LEAST_NORMAL:
        normal = x * _MANTISSA
        n = -23
    power = (bits_of(normal) - _SQRT_HALF_BITS) >> 23
    n_float = np.float32(power + n)
    f = from_bits(np.int32(bits_of(normal) - (power << 23))) - _ONE
    p = fma(_L8, f, _L7)
    p = fma(p, f, _L6)
    p = fma(p, f, _L5)
    p = fma(p, f, _L4)
    p = fma(p, f, _L3)
    p = fma(p, f, _L2)
    p = fma(p, f, _L1)
    p = fma(p, f, _L0)
    p = fma(p, f, _MINUS_HALF)
    tail = fma(f * f, p, n_float * _LN2_LOW)
    y = fma(n_float, _LN2_HIGH, f + tail)
    if x == _INF:
        y = _INF
    if x == _ZERO:
        y = -_INF
    if not x >= _ZERO:
        y = _NAN
    return y


@jit()
def silu(x: Any) -> Any:
    """``x / (1 + exp(-x))``."""
    return x / (_ONE + exp(-x))


@jit()
def swiglu(gate: Any, up: Any, y: Any) -> None:
    """``y = silu(gate) * up``, all ``[n]``."""
    for k in range(len(gate)):
        y[k] = silu(gate[k]) * up[k]


@jit()
def attend(q: Any, K: Any, V: Any, scale: Any, y: Any) -> None:
    """Attention of one query head over the visible positions.

    ``q [d]``, ``K [p, d]``, ``V [p, d]``, ``y [d]``. Scores ``dot(q, K[j]) * scale``, j ascending; softmax takes the
    largest away and sums ascending; each output element is an ascending chain of ``fma(p_j, v_j, acc)`` from +0.
    """
    p = np.empty(len(K), np.float32)
    largest = -_INF
    for j in range(len(K)):
        p[j] = dot(q, K[j]) * scale
        largest = p[j] if p[j] > largest else largest
    total = _ZERO
    for j in range(len(K)):
        p[j] = exp(p[j] - largest)
        total = total + p[j]
    for j in range(len(K)):
        p[j] = p[j] / total
    for k in range(len(q)):
        acc = _ZERO
        for j in range(len(K)):
            acc = fma(p[j], V[j, k], acc)
        y[k] = acc


@jit()
def add(x: Any, y: Any) -> None:
    """``x += y``, elementwise: the residual and the bias."""
    for k in range(len(x)):
        x[k] = x[k] + y[k]


@jit()
def argmax(logits: Any) -> Any:
    """Lowest index among the largest of ``logits [n]``; -1 where one of them is NaN or infinite."""
    best = 0
    for k in range(len(logits)):
        if (bits_of(logits[k]) & 0x7F800000) == 0x7F800000:
            return -1
        if logits[k] > logits[best]:
            best = k
    return best
