"""Quantised arithmetic from exact rationals: an emulation of the law that shares nothing with numba or LLVM."""

from __future__ import annotations

from fractions import Fraction

import exact_float32 as exact
import numpy as np

F = np.float32


def divided(a, b):
    """``a / b`` of two float32, rounded once."""
    return F(exact.rounded(Fraction(float(a)) / Fraction(float(b))))


def multiplied(a, b):
    """``a * b`` of two float32, rounded once; an exact zero keeps its sign."""
    product = Fraction(float(a)) * Fraction(float(b))
    return F(exact.rounded(product)) if product else F(a) * F(b)


def quantise(x):
    """``x [n]`` -> integers and scales of an activation."""
    q, d = [], []
    for block in np.asarray(x, F).reshape(-1, 32):
        scale = divided(max(abs(v) for v in block), 127)
        if scale < F(2.0**-126):
            q, d = [*q, *[0] * 32], [*d, F(0)]
            continue
        nearest = [round(Fraction(float(divided(v, scale)))) for v in block]  # Python rounds halves to even
        q, d = [*q, *(min(max(n, -127), 127) for n in nearest)], [*d, scale]
    return np.array(q, np.int8), np.array(d, F)


def dot(wq, wd, xq, xd):
    """Groups of four, lane j of 16 taking groups j, j + 16, ..., then the tree; an odd block count is padded."""
    wd = np.repeat(wd, 8 * len(xd) // len(wd))  # of each group
    wq, xq = ([int(v) for v in values] for values in (wq, xq))
    wd, xd = list(wd), list(xd)
    if len(xd) % 2:
        wq, xq, wd, xd = wq + [0] * 32, xq + [0] * 32, wd + [F(0)] * 8, [*xd, F(0)]
    lanes = [F(0)] * 16
    for group in range(len(wq) // 4):
        at = 4 * group
        total = sum(wq[at + i] * xq[at + i] for i in range(4))
        lanes[group % 16] = exact.fma(F(total), multiplied(wd[group], xd[at // 32]), lanes[group % 16])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [F(lanes[j] + lanes[j + half]) for j in range(half)]
    return lanes[0]
