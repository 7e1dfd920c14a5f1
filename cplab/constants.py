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

#: log splits x into m * 2**n with m from sqrt(1/2), whose bits these are rounded up, to sqrt(2).
SQRT_HALF_BITS = 0x3F3504F3

#: (log(1 + f) - f + f**2 / 2) / f**3 on [sqrt(1/2) - 1, sqrt(2) - 1], highest power first; with it log(1 + f) is off
#: by 3.2e-9 of itself before rounding to float32.
LOG_POLYNOMIAL = (
    float.fromhex("0x1.1457a8p-4"),
    float.fromhex("-0x1.de3c80p-4"),
    float.fromhex("0x1.e6f0a4p-4"),
    float.fromhex("-0x1.fc21fap-4"),
    float.fromhex("0x1.233764p-3"),
    float.fromhex("-0x1.555c4ep-3"),
    float.fromhex("0x1.99a4b6p-3"),
    float.fromhex("-0x1.000006p-2"),
    float.fromhex("0x1.555548p-2"),
)

#: Philox4x32-10 (Salmon et al., SC 2011): multipliers and what the key grows by each round.
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10

#: Quantised arithmetic: values that share a scale, products that are summed as integers, and the least scale of an
#: activation's block: below it, among subnormals, the block is zeros.
QUANT_BLOCK = 32
QUANT_GROUP = 4
QUANT_LEAST_SCALE = float.fromhex("0x1p-126")


def attention_scale(head_dim: int) -> float:
    """``head_dim ** -0.5`` in float64; users round it to float32 once."""
    return 1.0 / math.sqrt(head_dim)
