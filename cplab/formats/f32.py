"""float32: the weights as the arithmetic sees them, 4 bytes each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """As they are."""
    return np.ascontiguousarray(weights, np.float32)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """As they are."""
    return np.ascontiguousarray(packed, np.float32)


def finite(packed: NDArray[Any]) -> bool:
    """Whether no value is NaN or infinite."""
    return bool(np.isfinite(packed).all())


FORMAT = Format("f32", np.dtype(np.float32), 32, pack, unpack, finite, code=0)
