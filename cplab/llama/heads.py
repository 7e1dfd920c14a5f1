"""A matrix over the lab's own kernels: ``[B, columns] -> [B, rows]``, split over the cell's threads.

This is the whole boundary between the rivals and `cplab.kernels`: heads and projection go through here, in a format of
`cplab.formats`, so that a rival's heads are neither slower nor less exact than the lab's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange
from numpy.typing import NDArray

from cplab.decoder import team_of
from cplab.formats import format_named
from cplab.jit import call_address, jit
from cplab.kernels import compiling, units
from cplab.kernels.packing import columns_padded, streamed
from cplab.kernels.quantised_lines import KINDS, STEP
from cplab.kernels.quantised_scales import RECORD_BYTES
from cplab.kernels.quantising import quantise
from cplab.kernels.tiles import UNIT
from cplab.model import Tensor


class Matrix:
    """One matrix, packed.

    Args:
        weights: ``[rows, columns]``; rows a multiple of 16, columns of 32.
        format: a name of `cplab.formats`.
        threads: team size.
        ahead_bytes: prefetch distance, or None for that of a decoder which has found none.
    """

    def __init__(self, weights: Tensor, format: str, threads: int, ahead_bytes: int | None = None) -> None:
        compiling.compile_all()
        kind = format_named(format)
        packed = streamed(kind, weights.packed(kind))
        self._packed = packed.units
        self.rows, self.columns = weights.shape
        self.nbytes = self._packed.nbytes
        self.threads = threads
        self._quantised = KINDS.get(kind.code)
        ahead = ahead_bytes or 4 * packed.row_bytes
        self._arguments = (units.unit.address, packed.code, self._packed.ctypes.data, packed.row_bytes, ahead)

    def times(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """``x [B, columns] -> [B, rows]``, by the format's own law: the bits do not depend on the thread count."""
        B = len(x)
        panel: NDArray[Any] = np.ascontiguousarray(x.reshape(B, -1, UNIT).swapaxes(0, 1), np.float32)
        y = np.empty((B, self.rows), np.float32)
        if self._quantised is not None:
            steps = columns_padded(self._quantised.code, self.columns) // STEP
            records = np.zeros((steps, B, RECORD_BYTES), np.uint8)
            if not _records(panel.ctypes.data, B, self.columns, records.ctypes.data, self._quantised.offset):
                y[:] = np.nan  # an input that is not finite has no blocks
                return y
            panel = records
        sizes = (self.rows, self.columns, B)
        places = (panel.ctypes.data, y.ctypes.data)
        if self.threads == 1:
            _share(self._arguments, sizes, places, 0, 1)
            return y
        with team_of(self.threads):
            _together(self._arguments, sizes, places, self.threads)
        return y


@jit()
def _records(panel: int, B: int, n: int, records: int, offset: int) -> bool:
    """Quantise every token of a panel; whether all of it was finite."""
    finite = True
    for t in range(B):
        finite &= quantise(panel, B, t, 0, n // 32, records, offset)
    return finite


@jit()
def _share(arguments: Any, sizes: Any, places: Any, m: int, team: int) -> None:
    """Member m's units of rows."""
    unit, code, w, row_bytes, ahead = arguments
    row_count, n, T = sizes
    x, y = places
    units = row_count // UNIT
    for u in range(units * m // team, units * (m + 1) // team):
        at = w + u * UNIT * row_bytes
        call_address(unit, (code, at, row_bytes, n, x, T, y + 4 * u * UNIT, 4 * row_count, ahead))


@jit(parallel=True)
def _together(arguments: Any, sizes: Any, places: Any, team: int) -> None:
    for m in prange(team):
        _share(arguments, sizes, places, m, team)
