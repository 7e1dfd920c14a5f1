"""What a weight format is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import RowsNotInBlocksError

#: ``storage [..., n / block]`` -> ``(quants int8 [..., n], scales [..., n / those that share one])``, scales in float16
#: or, where they are products, in float32; both say them exactly.
Blocks = Callable[[NDArray[Any]], tuple[NDArray[np.int8], NDArray[np.float16] | NDArray[np.float32]]]


@dataclass(frozen=True, slots=True)
class Format:
    """A way to hold weights.

    A float format stores an item for each weight. A quantised format stores an item, which numpy knows as a structured
    type, for each block of consecutive weights of a row: the packed array of a matrix ``[rows, n]`` is
    ``[rows, n / block]``.

    Attributes:
        name: as in variant names, e.g. ``bf16``.
        storage: numpy dtype of one stored item.
        bits_per_weight: what a kernel streams for one weight.
        pack: float32 ``[..., n]`` -> storage ``[..., n / block]``; rounds as the format's module says.
        unpack: storage ``[..., n / block]`` -> float32 ``[..., n]``; exact.
        finite: storage -> whether no value is NaN or infinite.
        code: the small integer by which compiled code knows the format.
        block: weights in one stored item.
        blocks: the integers and scales that integer arithmetic runs on; None for float formats.
        in_files: whether files can hold it; else it is a form of memory alone.
    """

    name: str
    storage: np.dtype[Any]
    bits_per_weight: float
    pack: Callable[[NDArray[np.float32]], NDArray[Any]]
    unpack: Callable[[NDArray[Any]], NDArray[np.float32]]
    finite: Callable[[NDArray[Any]], bool]
    code: int
    block: int = 1
    blocks: Blocks | None = None
    in_files: bool = True

    def changed(self, weights: NDArray[np.float32]) -> int:
        """How many weights come back from ``unpack(pack(w))`` with other bits; 0 means lossless for this model."""
        return differing(self.unpack(self.pack(weights)), weights)

    def stored_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the packed array of weights of that shape.

        Raises:
            RowsNotInBlocksError: rows are not made of whole blocks.
        """
        if shape[-1] % self.block:
            raise RowsNotInBlocksError(
                f"rows of {shape[-1]} weights are not made of whole blocks of {self.block}, as {self.name} wants them"
            )
        return (*shape[:-1], shape[-1] // self.block)

    def shape_of(self, packed: NDArray[Any]) -> tuple[int, ...]:
        """Shape of the weights that a packed array holds."""
        return (*packed.shape[:-1], packed.shape[-1] * self.block) if packed.ndim else ()


def differing(a: NDArray[np.float32], b: NDArray[np.float32]) -> int:
    """How many values of two arrays have other bits."""
    return int(np.count_nonzero(a.view(np.uint32) != b.view(np.uint32)))
