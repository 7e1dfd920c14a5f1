"""Q5_0 of GGUF: blocks of 32 integers of 5 bits that share a half-precision scale, 22 bytes.

As Q4_0 with a bit more: byte k of ``qs`` holds the lower four bits of weight k and, in its high half, of weight k + 16;
bit k of ``qh``, 32 bits with the lowest first, is the fifth bit of weight k. All five say ``q + 16``. Packing is the
gguf package's, bit for bit: d is the first weight of largest magnitude divided by -16, ``q + 16 = trunc(w * (1 / d) +
16.5)``, at most 31; the rest is told in `cplab.formats.q4_0`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format

BLOCK = 32
_STORAGE = np.dtype([("d", "<f2"), ("qh", "u1", (BLOCK // 8,)), ("qs", "u1", (BLOCK // 2,))])


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """``[..., n]`` -> blocks ``[..., n / 32]``.

    Raises:
        UnpackableError: rows that are not made of whole blocks; a weight that is NaN, infinite, or too large.
    """
    from cplab.formats import block_packing  # numba is imported when something is packed, not before

    return block_packing.pack(weights, FORMAT, block_packing.quantise_q5_0)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """``d * q``, exact: ``[..., n / 32]`` -> ``[..., n]``."""
    values = quants(packed).reshape(*packed.shape, BLOCK).astype(np.float32)
    values *= packed["d"].astype(np.float32)[..., None]
    return values.reshape(FORMAT.shape_of(packed))


def finite(packed: NDArray[Any]) -> bool:
    """Whether no scale is NaN or infinite."""
    return bool(np.isfinite(packed["d"]).all())


def quants(packed: NDArray[Any]) -> NDArray[np.int8]:
    """The integers, -16..15: ``[..., n / 32]`` -> int8 ``[..., n]``."""
    low = np.concatenate([packed["qs"] & np.uint8(15), packed["qs"] >> np.uint8(4)], axis=-1)
    high = np.unpackbits(np.ascontiguousarray(packed["qh"]), axis=-1, bitorder="little")
    found: NDArray[np.int8] = (low | high << np.uint8(4)).view(np.int8)
    found -= np.int8(16)
    return found.reshape(FORMAT.shape_of(packed))


def scales(packed: NDArray[Any]) -> NDArray[np.float16]:
    """The scales: ``[..., n / 32]`` -> float16 ``[..., n / 32]``."""
    return np.ascontiguousarray(packed["d"]).astype(np.float16, copy=False)


FORMAT = Format(
    "q5_0", _STORAGE, 5.5, pack, unpack, finite, code=6, block=BLOCK, blocks=lambda p: (quants(p), scales(p))
)
