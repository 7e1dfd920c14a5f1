"""Matrices as kernels stream them: rows as they are in float formats, units of 16 in packed and quantised ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cplab.formats import Format
from cplab.kernels.bf12_units import MOST_COLUMNS, packed_units
from cplab.kernels.quantised_rows import BLOCK, KINDS, STEP
from cplab.kernels.tiles import UNIT
from cplab.kernels.vectors import BF12_CODE, BF16_CODE, LANES

#: Groups of four columns in a block.
_GROUPS = BLOCK // 4


def columns_padded(code: int, n: int) -> int:
    """Columns that a row of n takes in memory: whole lines."""
    line = STEP * KINDS[code].line_steps if code in KINDS else 1
    return -(-n // line) * line


def row_bytes(kind: Format, n: int) -> int:
    """Bytes that a row of n columns takes, its share of the scales included; of `bf12` without its unit's head."""
    if kind.code not in KINDS:
        return int(n * kind.bits_per_weight) // 8
    padded = columns_padded(kind.code, n)
    return padded // KINDS[kind.code].line_steps + padded // BLOCK * 2


class Streamed(NamedTuple):
    """A matrix in memory.

    Attributes:
        code: which kernel reads it; that of BF16 where packing it further would gain nothing.
        weights: how many there are.
        units: uint8 ``[rows / 16, bytes]``, a unit after the other.
        exceptions: weights of packed BF16 that are kept apart.
    """

    code: int
    weights: int
    units: NDArray[np.uint8]
    exceptions: int = 0

    @property
    def row_bytes(self) -> int:
        """Bytes of a unit for each of its rows."""
        return self.units.shape[1] // UNIT


def streamed(kind: Format, packed: NDArray[Any]) -> Streamed:
    """``[rows, n]`` in a format's storage as kernels stream it.

    Packed BF16: see `cplab.kernels.bf12_units`. Quantised: scales ``[steps][16 rows][2]``, then quants
    ``[16 rows][lines][64 bytes]`` (see `cplab.kernels.quantised_rows`); columns are filled up to whole lines with
    zeros.
    """
    code = kind.code
    if code == BF12_CODE:
        if packed.shape[1] <= MOST_COLUMNS:
            units_of, exceptions = packed_units(packed)
            if units_of.nbytes < packed.nbytes:
                return Streamed(code, packed.size, units_of, exceptions)
        code = BF16_CODE
    if kind.blocks is None:
        raw = np.ascontiguousarray(packed)
        if code == BF16_CODE:  # halves of 32 in turn: see `vectors.decode_half`
            raw = np.ascontiguousarray(raw.reshape(-1, 2, LANES).swapaxes(1, 2))
        return Streamed(code, packed.size, raw.view(np.uint8).reshape(len(packed) // UNIT, -1))
    quants, scales = kind.blocks(packed)
    rows, n = quants.shape
    padded = columns_padded(kind.code, n)
    units, steps = rows // UNIT, padded // STEP
    bytes_of = _filled(quants + np.int8(8) if KINDS[kind.code].line_steps == 2 else quants, padded).view(np.uint8)
    # Groups of the two blocks of a step in turn.
    in_turn: NDArray[np.uint8] = bytes_of.reshape(rows, steps, 2, _GROUPS, 4).swapaxes(2, 3).reshape(rows, steps, STEP)
    if KINDS[kind.code].line_steps == 2:
        pairs = in_turn.reshape(rows, steps // 2, 2, STEP)
        in_turn = pairs[:, :, 0] | pairs[:, :, 1] << np.uint8(4)
    of_steps = _filled(scales, padded // BLOCK).reshape(units, UNIT, steps, 2).swapaxes(1, 2)
    parts = (np.ascontiguousarray(part).view(np.uint8).reshape(units, -1) for part in (of_steps, in_turn))
    return Streamed(code, packed.size * kind.block, np.concatenate(list(parts), axis=1))


def _filled(array: NDArray[Any], columns: int) -> NDArray[Any]:
    """Zeros on the right, up to so many columns."""
    missing = columns - array.shape[1]
    return np.pad(array, ((0, 0), (0, missing))) if missing else array
