"""Q8_0 of GGUF: blocks of 32 integers of 8 bits that share a half-precision scale, 34 bytes.

Packing is the gguf package's, bit for bit: ``d = max |w| / 127``, each weight the nearest multiple of d, halves away
from zero, d then rounded to float16. A block whose ``1 / d`` is not finite (d below 2**-128) becomes zeros; one whose
float16 d would be infinite is refused. Files of others may hold -128, which packing never gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format

BLOCK = 32
_STORAGE = np.dtype([("d", "<f2"), ("qs", "i1", (BLOCK,))])


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """``[..., n]`` -> blocks ``[..., n / 32]``.

    Raises:
        UnpackableError: rows that are not made of whole blocks; a weight that is NaN, infinite, or too large.
    """
    from cplab.formats import block_packing  # numba is imported when something is packed, not before

    return block_packing.pack(weights, FORMAT, block_packing.quantise_q8_0)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """``d * q``, a product rounded once (and exact: 11 bits times 8); ``[..., n / 32]`` -> ``[..., n]``."""
    values = packed["qs"].astype(np.float32)
    values *= packed["d"].astype(np.float32)[..., None]
    return values.reshape(FORMAT.shape_of(packed))


def finite(packed: NDArray[Any]) -> bool:
    """Whether no scale is NaN or infinite."""
    return bool(np.isfinite(packed["d"]).all())


def quants(packed: NDArray[Any]) -> NDArray[np.int8]:
    """The integers, -128..127: ``[..., n / 32]`` -> int8 ``[..., n]``."""
    return np.ascontiguousarray(packed["qs"]).reshape(FORMAT.shape_of(packed))


def scales(packed: NDArray[Any]) -> NDArray[np.float16]:
    """The scales: ``[..., n / 32]`` -> float16 ``[..., n / 32]``."""
    return np.ascontiguousarray(packed["d"]).astype(np.float16, copy=False)


FORMAT = Format(
    "q8_0", _STORAGE, 8.5, pack, unpack, finite, code=3, block=BLOCK, blocks=lambda p: (quants(p), scales(p))
)
