"""What a weight format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Format:
    """A way to hold weights.

    Attributes:
        name: as in variant names, e.g. ``bf16``.
        storage: numpy dtype of the packed array, same shape as the weights.
        bits_per_weight: what a kernel streams for one weight.
        pack: float32 ``[...]`` -> storage ``[...]``; rounds to nearest even where it must.
        unpack: storage ``[...]`` -> float32 ``[...]``; exact.
        finite: storage ``[...]`` -> whether no value is NaN or infinite.
        code: the small integer by which compiled code knows the format.
    """

    name: str
    storage: np.dtype[Any]
    bits_per_weight: float
    pack: Callable[[NDArray[np.float32]], NDArray[Any]]
    unpack: Callable[[NDArray[Any]], NDArray[np.float32]]
    finite: Callable[[NDArray[Any]], bool]
    code: int

    def changed(self, weights: NDArray[np.float32]) -> int:
        """How many weights come back from ``unpack(pack(w))`` with other bits; 0 means lossless for this model."""
        back = self.unpack(self.pack(weights))
        return int(np.count_nonzero(back.view(np.uint32) != weights.view(np.uint32)))
