"""float32 arithmetic from exact rationals: an emulation of the law that shares nothing with numba or LLVM."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

F = np.float32
_LIMIT = Fraction(2) ** 128


def rounded(value: Fraction, bits: int = 24, lowest: int = -126, limit: Fraction = _LIMIT) -> float:
    """A rational rounded once, to nearest even, subnormals kept, infinite from ``limit`` on."""
    if value == 0:
        return 0.0
    numerator, denominator = abs(value).numerator, value.denominator
    exponent = numerator.bit_length() - denominator.bit_length()
    if Fraction(numerator, denominator) < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, lowest) - bits + 1)
    result = round(abs(value) / quantum) * quantum  # Python rounds a Fraction half to even
    return math.copysign(math.inf if result >= limit else float(result), value)


def fma(a, b, c):
    """``a * b + c`` rounded once."""
    if not all(math.isfinite(v) for v in (a, b, c)):
        with np.errstate(all="ignore"):
            return F(np.float64(a) * np.float64(b) + np.float64(c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        negative = (math.copysign(1, a) * math.copysign(1, b) < 0) and math.copysign(1, c) < 0
        both_zero = (a == 0 or b == 0) and c == 0
        return F(-0.0) if negative and both_zero else F(0.0)
    tiny = rounded(exact)
    return F(math.copysign(tiny, exact))


def dot(w, x):
    """16 lanes, one fma an element from +0, then the tree j + (j + 8), + 4, + 2, + 1."""
    lanes = [F(0)] * 16
    for k in range(len(w)):
        lanes[k % 16] = fma(w[k], x[k], lanes[k % 16])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [F(lanes[j] + lanes[j + half]) for j in range(half)]
    return lanes[0]


def dot_without_fma(w, x):
    """The same order with every product rounded: what the law is not."""
    lanes = [F(0)] * 16
    for k in range(len(w)):
        lanes[k % 16] = F(lanes[k % 16] + F(w[k] * x[k]))
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [F(lanes[j] + lanes[j + half]) for j in range(half)]
    return lanes[0]


def square_root(value):
    """Correctly rounded square root of a non-negative float32."""
    exact = Fraction(float(value))
    scale = 1 << 400
    root = math.isqrt(exact.numerator * exact.denominator * scale * scale)
    return F(rounded(Fraction(root, exact.denominator * scale)))


def exp(x):
    """The exp of the law, step by step, for arguments that are neither NaN nor out of range."""
    from cplab import constants as c

    magic = F(c.ROUND_MAGIC)
    shifted = fma(x, F(c.LOG2_E), magic)
    n = F(shifted - magic)
    r = fma(-n, F(c.LN2_HIGH), x)
    r = fma(-n, F(c.LN2_LOW), r)
    p = F(c.EXP_POLYNOMIAL[0])
    for coefficient in c.EXP_POLYNOMIAL[1:]:
        p = fma(p, r, F(coefficient))
    return F(rounded(Fraction(float(p)) * Fraction(2) ** int(n)))


def log(x):
    """The log of the law, step by step, for positive normal arguments."""
    from cplab import constants as c

    bits = int(F(x).view(np.int32))
    power = (bits - c.SQRT_HALF_BITS) >> 23
    f = F(np.int32(bits - (power << 23)).view(F) - F(1))
    p = F(c.LOG_POLYNOMIAL[0])
    for coefficient in (*c.LOG_POLYNOMIAL[1:], -0.5):
        p = fma(p, f, F(coefficient))
    tail = fma(F(f * f), p, F(F(power) * F(c.LN2_LOW)))
    return fma(F(power), F(c.LN2_HIGH), F(f + tail))
