"""Numbers that the law (arithmetic.py) and the kernels share, and nothing else that they share.

Every literal is a hex float, so that the file says which bits are meant.
"""

from __future__ import annotations

import math

#: Lanes of a dot product. Sixteen float32 are one AVX-512 register, two of AVX2, four of NEON.
LANES = 16

#: exp(x) is +inf above EXP_HIGH and +0 below EXP_LOW; in between every result is a normal float32.
EXP_HIGH = float.fromhex("0x1.62e148p+6")  # 88.72, rounded to float32
EXP_LOW = float.fromhex("-0x1.5d51ecp+6")  # -87.33, rounded to float32

#: log2(e), and ln 2 as a sum of two float32: the first has 15 significant bits, so n * LN2_HIGH is exact.
LOG2_E = float.fromhex("0x1.715476p+0")
LN2_HIGH = float.fromhex("0x1.62e400p-1")
LN2_LOW = float.fromhex("0x1.7f7d1cp-20")

#: Adding and taking away 1.5 * 2**23 rounds a small float32 to the nearest integer, ties to even.
ROUND_MAGIC = float.fromhex("0x1.8p+23")

#: e**r on [-ln2/2, ln2/2], highest power first; minimax in relative error, 5.2e-11 before rounding to float32.
EXP_POLYNOMIAL = (
    float.fromhex("0x1.9f0862p-13"),
    float.fromhex("0x1.6d8d54p-10"),
    float.fromhex("0x1.111272p-7"),
    float.fromhex("0x1.55548ep-5"),
    float.fromhex("0x1.555554p-3"),
    float.fromhex("0x1p-1"),
    float.fromhex("0x1p+0"),
    float.fromhex("0x1p+0"),
)

#: Quantised arithmetic: values that share a scale, products that are summed as integers, and the least scale of an
#: activation's block: below it, among subnormals, the block is zeros.
QUANT_BLOCK = 32
QUANT_GROUP = 4
QUANT_LEAST_SCALE = float.fromhex("0x1p-126")


def attention_scale(head_dim: int) -> float:
    """``head_dim ** -0.5`` in float64; users round it to float32 once."""
    return 1.0 / math.sqrt(head_dim)
