"""Gumbel noise for a list of codes, 16 at a time, bit-equal to `cplab.arithmetic_sampling.gumbel`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from cplab import constants
from cplab.jit import intrinsic
from cplab.kernels import vectors as v

_WIDE = ir.VectorType(v.I64, v.LANES)


def _product(builder: Any, multiplier: int, x: Any) -> tuple[Any, Any]:
    """Upper and lower half of ``multiplier * x``, unsigned, lane by lane."""
    factor = ir.Constant(_WIDE, [multiplier] * v.LANES)
    whole = builder.mul(factor, builder.zext(x, _WIDE))
    upper = builder.lshr(whole, ir.Constant(_WIDE, [32] * v.LANES))
    return builder.trunc(upper, v.INTS), builder.trunc(whole, v.INTS)


def _halves(builder: Any, word: Any) -> tuple[Any, Any]:
    """Lower and upper half of an int64, each in all lanes."""
    upper = builder.trunc(builder.lshr(word, v.i64(32)), v.I32)
    return v.spread(builder, builder.trunc(word, v.I32)), v.spread(builder, upper)


def philox(builder: Any, counter: list[Any], key: list[Any]) -> list[Any]:
    """Philox4x32-10 in every lane: four words of int32 lanes under a key of two."""
    (m0, m1), weyl = constants.PHILOX_MULTIPLIERS, constants.PHILOX_WEYL
    c, k = list(counter), list(key)
    for _ in range(constants.PHILOX_ROUNDS):
        a_upper, a_lower = _product(builder, m0, c[0])
        b_upper, b_lower = _product(builder, m1, c[2])
        first = builder.xor(builder.xor(b_upper, c[1]), k[0])
        third = builder.xor(builder.xor(a_upper, c[3]), k[1])
        c = [first, b_lower, third, a_lower]
        k = [builder.add(part, v.splat_int(grown - 2**32)) for part, grown in zip(k, weyl, strict=True)]
    return c


def gumbel_of(builder: Any, word: Any) -> Any:
    """``-log(-log(u))`` with u the 23 upper bits of each word as an odd multiple of 2**-24."""
    odd = builder.add(builder.shl(builder.lshr(word, v.splat_int(9)), v.splat_int(1)), v.splat_int(1))
    u = builder.fmul(builder.sitofp(odd, v.VECTOR), v.splat(2.0**-24))
    return builder.fneg(v.log(builder, builder.fneg(v.log(builder, u))))


@intrinsic
def gumbel(typingctx: Any, seed: Any, frame: Any, codebook: Any, codes: Any, noise: Any, blocks: Any) -> Any:
    """Noise of ``blocks * 16`` codes, int32 at ``codes``, as float32 at ``noise``; seed and frame are 64 bits each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        seed, frame, codebook, codes, noise, blocks = args
        key = list(_halves(builder, seed))
        frame_words = _halves(builder, frame)
        step = v.spread(builder, builder.trunc(codebook, v.I32))
        with v.counted(builder, blocks) as k:
            start = builder.mul(v.i64(64), k)
            code = v.load(builder, builder.add(codes, start), v.INTS)
            words = philox(builder, [code, step, *frame_words], key)
            v.store(builder, gumbel_of(builder, words[0]), builder.add(noise, start))
        return context.get_dummy_value()

    return types.none(*([types.int64] * 6)), generate
