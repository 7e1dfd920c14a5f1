"""Q4_0 of GGUF: blocks of 32 integers of 4 bits that share a half-precision scale, 18 bytes.

Byte k of a block holds weight k in its low half and weight k + 16 in its high one, each as ``q + 8``. Packing is the
gguf package's, bit for bit: d is the first weight of largest magnitude divided by -8, so that this one becomes -8, and
``q + 8 = trunc(w * (1 / d) + 8.5)``, at most 15, product and sum rounded to float32 as in ggml's C (gguf before 0.18
kept them in float64); d is then rounded to float16. A block whose ``1 / d`` is not finite becomes zeros; one whose
float16 d would be infinite is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format

BLOCK = 32
_STORAGE = np.dtype([("d", "<f2"), ("qs", "u1", (BLOCK // 2,))])


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """``[..., n]`` -> blocks ``[..., n / 32]``.

    Raises:
        UnpackableError: rows that are not made of whole blocks; a weight that is NaN, infinite, or too large.
    """
    from cplab.formats import block_packing  # numba is imported when something is packed, not before

    return block_packing.pack(weights, FORMAT, block_packing.quantise_q4_0)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """``d * q``, exact: ``[..., n / 32]`` -> ``[..., n]``."""
    values = quants(packed).reshape(*packed.shape, BLOCK).astype(np.float32)
    values *= packed["d"].astype(np.float32)[..., None]
    return values.reshape(FORMAT.shape_of(packed))


def finite(packed: NDArray[Any]) -> bool:
    """Whether no scale is NaN or infinite."""
    return bool(np.isfinite(packed["d"]).all())


def quants(packed: NDArray[Any]) -> NDArray[np.int8]:
    """The integers, -8..7: ``[..., n / 32]`` -> int8 ``[..., n]``."""
    halves = np.empty((*packed.shape, 2, BLOCK // 2), np.int8)
    np.bitwise_and(packed["qs"], np.uint8(15), out=halves[..., 0, :], casting="unsafe")
    np.right_shift(packed["qs"], np.uint8(4), out=halves[..., 1, :], casting="unsafe")
    halves -= np.int8(8)
    return halves.reshape(FORMAT.shape_of(packed))


def scales(packed: NDArray[Any]) -> NDArray[np.float16]:
    """The scales: ``[..., n / 32]`` -> float16 ``[..., n / 32]``."""
    return np.ascontiguousarray(packed["d"]).astype(np.float16, copy=False)


FORMAT = Format(
    "q4_0", _STORAGE, 4.5, pack, unpack, finite, code=4, block=BLOCK, blocks=lambda p: (quants(p), scales(p))
)
