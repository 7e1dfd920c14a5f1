"""The canonical arithmetic of quantised weights, ``q8_0``, ``q6_k``, ``q5_0`` and ``q4_0``: scalar, readable, the law.

Weights are integers with a scale for each block of 32, of ``q6_k`` for each 16; activations become the same before
every matrix: one token's input is quantised once, block by block of 32 (`quantise`). Products of integers are summed
exactly in int32, four at a time, and each such group is scaled and added in float32 (`dot`). Everything else (norms,
RoPE, attention, SwiGLU, residual, bias) is `cplab.arithmetic` and stays float32. The formats differ in the integers
that a weight may be, and ``q6_k`` in that a scale is a product: a half-precision number of 256 weights times an int8
of 16 of them, 19 bits together at most, which float32 holds exactly. So a scale is a float32 like any other, and there
is one law.

Groups of four are what dot-product instructions sum at once. Whether they are added by VNNI with an offset, by
``maddubs`` of ``|w|`` and ``sign(x, w)``, by NEON ``sdot`` or one by one, the integer is the same, so this law gives
the same bits everywhere, for weights of -128 too: quantising never gives them, foreign files may.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cplab import constants
from cplab.arithmetic import bits_of, fma, from_bits
from cplab.jit import jit

#: Consecutive activations that share a scale.
BLOCK = constants.QUANT_BLOCK
#: Consecutive products that are summed as integers.
GROUP = constants.QUANT_GROUP

_LANES = constants.LANES
_HALF = BLOCK // GROUP
_SIGN_OFF = np.int32(0x7FFFFFFF)
_INFINITE = np.int32(0x7F800000)
_LARGEST_QUANT = np.int32(127)
_LEAST_SCALE = np.float32(constants.QUANT_LEAST_SCALE)
_MAGIC = np.float32(constants.ROUND_MAGIC)
_ZERO = np.float32(0)


@jit()
def quantise(x: Any, q: Any, d: Any) -> Any:
    """Quantise an activation: ``x [n]`` f32 -> ``q [n]`` int8, ``d [n / 32]`` f32, n a multiple of 32.

    In each block ``d = amax / 127`` with ``amax`` the largest magnitude, and ``q = clamp(round(x / d), -127, 127)``,
    the quotient rounded to float32, then to the nearest integer, halves to even. A block whose d would be below
    2**-126 is zeros, d included.

    Returns:
        Whether every value is finite; where not, ``q`` and ``d`` mean nothing (`NonFiniteActivationError`).
    """
    for b in range(len(d)):
        # Magnitudes as integers: the same order, and a NaN, which no comparison of floats would find, comes out on top.
        amax = np.int32(0)
        for k in range(b * BLOCK, (b + 1) * BLOCK):
            amax = max(amax, np.int32(bits_of(x[k]) & _SIGN_OFF))
        if amax >= _INFINITE:
            return False
        scale = from_bits(amax) / np.float32(127)
        if scale < _LEAST_SCALE:
            d[b] = _ZERO
            for k in range(b * BLOCK, (b + 1) * BLOCK):
                q[k] = 0
            continue
        d[b] = scale
        for k in range(b * BLOCK, (b + 1) * BLOCK):
            nearest = np.int32(bits_of(x[k] / scale + _MAGIC) - bits_of(_MAGIC))
            q[k] = min(max(nearest, -_LARGEST_QUANT), _LARGEST_QUANT)
    return True


@jit()
def group_sum(wq: Any, xq: Any, k: Any) -> Any:
    """The exact int32 sum of the four products from element k on."""
    total = np.int32(0)
    for i in range(GROUP):
        total += np.int32(wq[k + i]) * np.int32(xq[k + i])
    return total


@jit()
def dot(wq: Any, wd: Any, xq: Any, xd: Any) -> Any:
    """Dot product of quantised ``w`` and ``x``: ``wq, xq [n]`` int8, ``wd, xd [n / 32]`` f32, n a multiple of 32.

    ``wd`` is ``[n / 16]`` where 16 weights share a scale. Group g is elements 4 g .. 4 g + 3, whose
    products are summed exactly; its scale is ``wd * xd``, that of its weights times that of its block of activations,
    rounded to float32. Lane j of 16 takes groups j, j + 16, ... ascending, ``acc = fma(float(sum), scale, acc)`` from
    +0; so a block goes to eight lanes, the even ones to 0..7 and the odd ones to 8..15. The lanes are then added as in
    `cplab.arithmetic.dot`: j + (j + 8), then + 4, + 2, + 1.

    An odd number of blocks is made even by one of zeros with a scale of zero. It changes nothing, because an
    accumulator is never -0, the one number that adding +0 changes: sums are integers, so every term and accumulator is
    a multiple of 2**-149 and nothing is ever rounded away to a -0; and a sum that is exactly zero is +0 unless both its
    parts are -0.
    """
    lanes = np.zeros(_LANES, np.float32)
    for block in range(len(xd)):
        first = _HALF * (block % 2)
        for j in range(_HALF):
            at = block * BLOCK + j * GROUP
            scale = wd[at * len(wd) // len(wq)] * xd[block]
            lanes[first + j] = fma(np.float32(group_sum(wq, xq, at)), scale, lanes[first + j])
    if len(xd) % 2:
        for j in range(_HALF, _LANES):
            lanes[j] = fma(_ZERO, _ZERO, lanes[j])
    width = _LANES
    while width > 1:
        width //= 2
        for j in range(width):
            lanes[j] = lanes[j] + lanes[j + width]
    return lanes[0]


@jit()
def matvec(Wq: Any, Wd: Any, xq: Any, xd: Any, y: Any) -> None:
    """``y[r] = dot(Wq[r], Wd[r], xq, xd)`` for ``Wq [rows, n]`` int8, ``Wd [rows, n / 32 or 16]`` f32, ``y [rows]``."""
    for r in range(len(Wq)):
        y[r] = dot(Wq[r], Wd[r], xq, xd)
