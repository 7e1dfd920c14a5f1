"""Quantising superblocks of Q6_K, compiled: the scales that make the least square error that was found.

Three steps, each a least squares fit or a choice among fits:

1. For each 16 weights several scales are tried, those that make the largest one of `TARGETS`; the integers that a
   trial gives have a best scale, ``sum w q / sum q^2``, and the trial that takes most off the square error is kept.
2. The largest of these 16 scales, divided by one of `TOP_SCALES` and rounded to float16, is a trial of d. With it every
   scale becomes the nearest integer, and integers are made anew; the d with the least square error over the superblock
   is kept. Neither sign of d, nor the largest integer, is right for all: that of the largest scale loses least where
   the small ones happen to fall near integers.
3. With d given, each scale's neighbours are tried too.

Nothing depends on the order in which blocks are taken. A d that float16 does not hold is not tried; where the largest
weight is beyond what the last one holds, nothing is, and the superblock is refused. A superblock for which
nothing is better than zeros is zeros.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cplab.arithmetic import from_bits
from cplab.jit import jit

#: What the largest weight of 16 is tried as.
TARGETS = np.array([-32.5, -32.0, -31.5, -31.0, -30.0, -29.0, 28.5, 29.5, 30.5, 31.0, 31.5])
#: What the largest scale of a superblock is tried as.
TOP_SCALES = np.array([-128.0, 127.0, -121.0, 116.0, -98.0, 64.0])
#: The least float16 above zero, the largest, and what rounds beyond it.
_LEAST_F16, _LARGEST_F16, _BEYOND_F16 = 2.0**-24, 65504.0, 65520.0
_MOST_STEPS = 128.0 * 32.0
_SIGN_OFF = np.int32(0x7FFFFFFF)


@jit()
def half(x: Any) -> Any:
    """A float64 rounded to float16's values, halves to even, subnormals kept; infinite from 65520 on."""
    if not abs(x) < _BEYOND_F16:
        return math.copysign(np.inf, x)
    _, exponent = math.frexp(x)
    step = math.ldexp(1.0, max(exponent, -13) - 11)
    return np.rint(x / step) * step


@jit()
def _nearest(x: Any, inverse: Any) -> Any:
    """The integer of -32..31 nearest to ``x * inverse``."""
    return min(max(np.rint(x * inverse), -32.0), 31.0)


@jit()
def _best_scale(w: Any) -> Any:
    """The unrounded scale of ``w [16]`` f32 that leaves the least square error of those tried; 0 for zeros."""
    largest = 0.0
    for k in range(16):
        if abs(w[k]) > abs(largest):
            largest = np.float64(w[k])
    best, most = 0.0, 0.0
    if largest == 0.0:
        return best
    for target in TARGETS:
        inverse = target / largest
        both, square = 0.0, 0.0
        for k in range(16):
            q = _nearest(np.float64(w[k]), inverse)
            both += w[k] * q
            square += q * q
        # With its best scale, both / square, a trial takes both^2 / square off the square error.
        if both * both > most * square:
            most = both * both / square
            best = both / square
    return best


@jit()
def _error(w: Any, scale: Any) -> Any:
    """Square error of ``w [16]`` f32 as nearest multiples of a scale; ones of zero are zeros."""
    inverse = 1.0 / scale if scale != 0.0 else 0.0
    error = 0.0
    for k in range(16):
        x = np.float64(w[k])
        off = x - scale * _nearest(x, inverse)
        error += off * off
    return error


@jit()
def _in_range(x: Any) -> Any:
    return min(max(np.rint(x), -128.0), 127.0)


@jit()
def _super_scale(block: Any, wanted: Any) -> Any:
    """The float16 d of ``block [256]`` whose integer scales come nearest to ``wanted [16]``; 0 where there is none."""
    top = 0.0
    for s in wanted:
        if abs(s) > abs(top):
            top = s
    best, least = 0.0, 0.0
    for j in range(16):
        least += _error(block[16 * j : 16 * j + 16], 0.0)
    for target in TOP_SCALES:
        d = half(top / target)
        if d == 0.0:  # the least there is, with smaller scales
            d = _LEAST_F16
        if abs(d) == np.inf:  # the largest weights still are within reach
            d = math.copysign(_LARGEST_F16, d)
        error = 0.0
        for j in range(16):
            error += _error(block[16 * j : 16 * j + 16], d * _in_range(wanted[j] / d))
        if error < least:
            best, least = d, error
    return best


@jit()
def _store(block: Any, scales: Any, d: Any, stored: Any) -> None:
    """Integers of ``block [256]`` for scales ``[16]`` and d, as the format lays them out, ``stored [210]``."""
    stored[:208] = 0
    for j in range(16):
        stored[192 + j] = np.uint8(np.int64(scales[j]) & 255)
        scale = d * scales[j]
        inverse = 1.0 / scale if scale != 0.0 else 0.0
        for k in range(16 * j, 16 * j + 16):
            code = np.int64(_nearest(np.float64(block[k]), inverse)) + 32
            of_half, c, at = k // 128, k % 128 // 32, k % 32
            stored[64 * of_half + 32 * (c % 2) + at] |= np.uint8((code & 15) << (4 * (c // 2)))
            stored[128 + 32 * of_half + at] |= np.uint8((code >> 4) << (2 * c))


@jit()
def quantise_q6_k(blocks: Any, bits: Any, d: Any, stored: Any) -> None:
    """Q6_K of ``blocks [b, 256]`` f32 (``bits``: the same as int32): ``d [b]`` f32, all else in ``stored [b, 210]``.

    Where a weight is NaN, infinite or too large, ``d`` is infinite and the integers mean nothing.
    """
    wanted, scales = np.zeros(16), np.zeros(16)
    for b in range(len(blocks)):
        largest = np.int32(0)
        for k in range(256):  # integers order as the magnitudes do, NaN above infinity
            largest = max(largest, np.int32(bits[b, k] & _SIGN_OFF))
        if not np.float64(from_bits(largest)) / _MOST_STEPS < _BEYOND_F16:
            d[b] = np.inf
            continue
        for j in range(16):
            wanted[j] = _best_scale(blocks[b, 16 * j : 16 * j + 16])
        found = _super_scale(blocks[b], wanted)
        for j in range(16):
            part = blocks[b, 16 * j : 16 * j + 16]
            near = _in_range(wanted[j] / found) if found != 0.0 else 0.0
            scales[j], least = near, _error(part, found * near)
            for other in (near - 1.0, near + 1.0):
                if -128.0 <= other <= 127.0 and found != 0.0:
                    error = _error(part, found * other)
                    if error < least:
                        scales[j], least = other, error
        d[b] = found
        _store(blocks[b], scales, found, stored[b])
