"""Quantising blocks of weights as the gguf package does, compiled: a fresh process packs a model in a second.

What a model's blocks are must not depend on the package's version, whose Q4_0 has changed; tests hold the bits of the
two against each other. Maxima are those of integers, which LLVM can make vectors of. Q6_K, which the package only
decodes, is quantised in `cplab.formats.superblock_fitting`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.arithmetic import from_bits
from cplab.errors import UnpackableError
from cplab.formats.format import Format
from cplab.jit import jit

_SIGN_OFF = np.int32(0x7FFFFFFF)
_INFINITE = np.int32(0x7F800000)
_MOST = np.finfo(np.float32).max
_ZERO, _ONE, _TWO = np.float32(0), np.float32(1), np.float32(2)
_EIGHT_AND_A_HALF, _SIXTEEN_AND_A_HALF = np.float32(8.5), np.float32(16.5)


def pack(weights: NDArray[np.float32], target: Format, quantise: Callable[..., None]) -> NDArray[Any]:
    """``[..., n]`` float32 -> blocks ``[..., n / block]`` of a GGUF block format.

    Args:
        weights: any shape whose last axis is a multiple of the block.
        target: what becomes of them; its stored item has a float16 ``d``.
        quantise: a kernel that fills in the rest of an item, and gives d in float32.

    Raises:
        UnpackableError: see the formats.
    """
    packed = np.empty(target.stored_shape(weights.shape), target.storage)
    blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, target.block)
    d = np.empty(len(blocks), np.float32)
    quantise(blocks, blocks.view(np.int32), d, packed.reshape(-1).view(np.uint8).reshape(len(blocks), -1))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        packed["d"] = d.reshape(packed.shape)
        held = np.isfinite(packed["d"])
    if not held.all():
        _refuse(blocks[int(np.argmin(held))], int(np.argmin(held)), weights.shape, target)
    return packed


def _refuse(block: NDArray[np.float32], index: int, shape: tuple[int, ...], target: Format) -> None:
    """Raise for the weight that the block's scale cannot hold."""
    worst = int(np.argmax(np.where(np.isnan(block), np.inf, np.abs(block))))
    at = [int(n) for n in np.unravel_index(index * target.block + worst, shape)]
    why = f"beyond the float16 scales of {target.name}" if np.isfinite(block[worst]) else "no number"
    raise UnpackableError(f"the weight {float(block[worst]):.9g} at {at} is {why}; {target.name} cannot hold it")


@jit()
def _largest(bits: Any) -> Any:
    """Bits of the largest magnitude in ``bits [32]`` int32; integers order as the magnitudes do, NaN above infinity."""
    largest = np.int32(0)
    for k in range(32):
        largest = max(largest, np.int32(bits[k] & _SIGN_OFF))
    return largest


@jit()
def quantise_q8_0(blocks: Any, bits: Any, d: Any, stored: Any) -> None:
    """Q8_0 of ``blocks [b, 32]`` f32 (``bits``: the same as int32): ``d [b]`` f32, ``stored [b, 34]`` from byte 2 on.

    Where a weight is NaN or infinite, ``d`` is infinite and the integers mean nothing.
    """
    for b in range(len(blocks)):
        largest = _largest(bits[b])
        if largest >= _INFINITE:
            d[b] = np.inf
            continue
        scale = from_bits(largest) / np.float32(127)
        inverse = _ONE / scale
        if inverse > _MOST:
            scale = inverse = _ZERO
        d[b] = scale
        for k in range(32):
            scaled = abs(blocks[b, k]) * inverse
            down = np.int32(scaled)
            whole = np.int32(down + np.int32(_TWO * (scaled - np.float32(down))))
            stored[b, 2 + k] = np.uint8(-whole if bits[b, k] < 0 else whole)


@jit()
def _signed_scale(block: Any, bits: Any, steps: Any) -> Any:
    """The scale that makes the first weight of largest magnitude ``-steps``, and its inverse, ``[32]`` f32 and int32.

    An infinite scale where a weight is NaN or infinite.
    """
    largest = _largest(bits)
    if largest >= _INFINITE:
        return np.float32(np.inf), _ZERO
    first = 0
    while np.int32(bits[first] & _SIGN_OFF) != largest:
        first += 1
    scale = block[first] / np.float32(-steps)
    inverse = _ONE / scale
    if abs(inverse) > _MOST:
        return (scale if largest == 0 else _ZERO), _ZERO  # a block of zeros has d = -0 or +0 there
    return scale, inverse


@jit()
def quantise_q4_0(blocks: Any, bits: Any, d: Any, stored: Any) -> None:
    """Q4_0 of ``blocks [b, 32]`` f32 (``bits``: the same as int32): ``d [b]`` f32, ``stored [b, 18]`` from byte 2 on.

    Where a weight is NaN or infinite, ``d`` is infinite and the integers mean nothing.
    """
    for b in range(len(blocks)):
        d[b], inverse = _signed_scale(blocks[b], bits[b], 8)
        for k in range(16):
            low = min(np.int32(blocks[b, k] * inverse + _EIGHT_AND_A_HALF), np.int32(15))
            high = min(np.int32(blocks[b, k + 16] * inverse + _EIGHT_AND_A_HALF), np.int32(15))
            stored[b, 2 + k] = np.uint8(low | (high << 4))


@jit()
def quantise_q5_0(blocks: Any, bits: Any, d: Any, stored: Any) -> None:
    """Q5_0 of ``blocks [b, 32]`` f32 (``bits``: the same as int32): ``d [b]`` f32, ``stored [b, 22]`` from byte 2 on.

    Where a weight is NaN or infinite, ``d`` is infinite and the integers mean nothing.
    """
    for b in range(len(blocks)):
        d[b], inverse = _signed_scale(blocks[b], bits[b], 16)
        highest = np.uint32(0)
        for k in range(16):
            low = min(np.int32(blocks[b, k] * inverse + _SIXTEEN_AND_A_HALF), np.int32(31))
            high = min(np.int32(blocks[b, k + 16] * inverse + _SIXTEEN_AND_A_HALF), np.int32(31))
            stored[b, 6 + k] = np.uint8((low & 15) | ((high & 15) << 4))
            highest |= np.uint32(low >> 4) << np.uint32(k) | np.uint32(high >> 4) << np.uint32(k + 16)
        for k in range(4):
            stored[b, 2 + k] = np.uint8((highest >> np.uint32(8 * k)) & np.uint32(255))
