"""Q6_K of GGUF: superblocks of 256 integers of 6 bits, a scale of 8 bits for each 16, one of half precision for all.

A weight is ``d * scale * q``, q from -32 to 31; a superblock takes 210 bytes. Its two halves of 128 weights lie alike:
weight k of a half, k = 32 c + j, has ``q + 32`` in six bits. The lower four are in byte ``32 (c % 2) + j`` of the
half's 64 of ``ql``, in its low half for c below 2 and in its high one above; the upper two are bits 2 c and 2 c + 1 of
byte j of the half's 32 of ``qh``.

``d * scale`` has 11 and 8 bits and is exact in float32, for subnormal d too; so a weight is exact as well. The gguf
package only decodes this format: how the scales are chosen is told in `cplab.formats.superblock_fitting`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format

#: Weights of a superblock, and those that share a scale.
BLOCK, SCALED = 256, 16
_STORAGE = np.dtype([("ql", "u1", (BLOCK // 2,)), ("qh", "u1", (BLOCK // 4,)), ("scales", "i1", (16,)), ("d", "<f2")])


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """``[..., n]`` -> superblocks ``[..., n / 256]``.

    Raises:
        UnpackableError: rows that are not made of whole blocks; a weight that is NaN, infinite, or too large.
    """
    from cplab.formats import block_packing, superblock_fitting  # numba is imported when something is packed

    return block_packing.pack(weights, FORMAT, superblock_fitting.quantise_q6_k)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """``d * scale * q``, exact: ``[..., n / 256]`` -> ``[..., n]``."""
    values = quants(packed).reshape(*packed.shape, BLOCK // SCALED, SCALED).astype(np.float32)
    values *= scales(packed).reshape(*packed.shape, BLOCK // SCALED, 1)
    return values.reshape(FORMAT.shape_of(packed))


def finite(packed: NDArray[Any]) -> bool:
    """Whether no scale of a superblock is NaN or infinite."""
    return bool(np.isfinite(packed["d"]).all())


def quants(packed: NDArray[Any]) -> NDArray[np.int8]:
    """The integers, -32..31: ``[..., n / 256]`` -> int8 ``[..., n]``."""
    found = np.empty((*packed.shape, 2, 4, 32), np.uint8)  # halves, c, j
    low = packed["ql"].reshape(*packed.shape, 2, 2, 32)
    high = packed["qh"].reshape(*packed.shape, 2, 32)
    found[..., :2, :] = low & np.uint8(15)
    found[..., 2:, :] = low >> np.uint8(4)
    for c in range(4):
        found[..., c, :] |= (high >> np.uint8(2 * c) & np.uint8(3)) << np.uint8(4)
    values: NDArray[np.int8] = found.view(np.int8)
    values -= np.int8(32)
    return values.reshape(FORMAT.shape_of(packed))


def scales(packed: NDArray[Any]) -> NDArray[np.float32]:
    """What each 16 integers are multiplied by, ``d * scale``: ``[..., n / 256]`` -> float32 ``[..., n / 16]``."""
    values = packed["scales"].astype(np.float32)
    values *= packed["d"].astype(np.float32)[..., None]
    return values.reshape(*packed.shape[:-1], -1)


FORMAT = Format(
    "q6_k", _STORAGE, 6.5625, pack, unpack, finite, code=7, block=BLOCK, blocks=lambda p: (quants(p), scales(p))
)
