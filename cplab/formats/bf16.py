"""bfloat16: the upper half of a float32, 2 bytes; what the published checkpoints hold. Decoding is a shift."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format

_QUIET = np.uint32(0x400000)


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """Round to nearest even; a NaN stays a (quiet) NaN."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    return (np.where(nan, bits | _QUIET, rounded) >> np.uint32(16)).astype(np.uint16)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """Exact."""
    wide = np.zeros((*packed.shape, 2), np.uint16)
    wide[..., 1 if np.little_endian else 0] = packed
    return wide.view(np.float32)[..., 0]


def finite(packed: NDArray[Any]) -> bool:
    """Whether no exponent is all ones."""
    return not bool(((packed & np.uint16(0x7F80)) == np.uint16(0x7F80)).any())


FORMAT = Format("bf16", np.dtype(np.uint16), 16, pack, unpack, finite, code=1)
