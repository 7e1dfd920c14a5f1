"""IEEE half: 2 bytes, 11 significant bits but a small range (largest 65504, smallest step 2**-24).

A BF16 checkpoint may hold values that F16 cannot; packing says how many (`Format.changed`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats.format import Format


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """Round to nearest even; beyond 65504 becomes infinite, which `finite` then finds."""
    with np.errstate(over="ignore", under="ignore"):
        return np.ascontiguousarray(weights, np.float32).astype(np.float16)


def unpack(packed: NDArray[Any]) -> NDArray[np.float32]:
    """Exact."""
    return packed.astype(np.float32)


def finite(packed: NDArray[Any]) -> bool:
    """Whether no exponent is all ones."""
    return not bool(((packed.view(np.uint16) & np.uint16(0x7C00)) == np.uint16(0x7C00)).any())


FORMAT = Format("f16", np.dtype(np.float16), 16, pack, unpack, finite, code=2)
