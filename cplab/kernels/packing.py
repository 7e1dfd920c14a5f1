"""Matrices as kernels stream them: rows as they are in float formats, units of 16 in packed and quantised ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cplab.formats import Format
from cplab.kernels.bf12_units import MOST_COLUMNS, packed_units, rows_bytes
from cplab.kernels.quantised_lines import BLOCK, KINDS, STEP, Quantised
from cplab.kernels.quantised_scales import scale_bytes
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
    if kind.code == BF12_CODE:
        return rows_bytes(n) // UNIT
    if kind.code not in KINDS:
        return int(n * kind.bits_per_weight) // 8
    held = KINDS[kind.code]
    lines = columns_padded(kind.code, n) // (STEP * held.line_steps)
    return lines * held.line_bytes + scale_bytes(held, lines) // UNIT


class Streamed(NamedTuple):
    """A matrix in memory.

    Attributes:
        code: which kernel reads it; that of BF16 where packing further would gain nothing, or rows are too long.
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

    Packed BF16: see `cplab.kernels.bf12_units`. Quantised: scales, then lines of quants (see
    `cplab.kernels.quantised_rows`); columns are filled up to whole lines with zeros.
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
    held = KINDS[kind.code]
    quants, scales = kind.blocks(packed)
    padded = columns_padded(kind.code, quants.shape[1])
    parts = [*_scales(held, packed, scales, padded), _lines(held, _filled(quants, padded))]
    units = [np.ascontiguousarray(part).view(np.uint8).reshape(len(packed) // UNIT, -1) for part in parts]
    return Streamed(code, packed.size * kind.block, np.concatenate(units, axis=1))


def _lines(held: Quantised, quants: NDArray[np.int8]) -> NDArray[np.uint8]:
    """Quants ``[rows, n]``, n whole lines, as planes ``[rows, lines, bytes]``: see `cplab.kernels.quantised_lines`."""
    rows, n = quants.shape
    codes = (quants + np.int8(held.offset) if held.in_nibbles else quants).view(np.uint8)
    # Groups of the two blocks of a step in turn.
    codes = codes.reshape(rows, n // STEP, 2, _GROUPS, 4).swapaxes(2, 3).reshape(rows, -1, held.line_steps, STEP)
    if not held.in_nibbles:
        return codes
    low = codes & np.uint8(15)
    nibbles = (low[:, :, ::2] | low[:, :, 1::2] << np.uint8(4)).reshape(rows, -1, held.upper_at)
    if not held.upper_bits:
        return nibbles
    upper = np.zeros((*codes.shape[:2], STEP), np.uint8)
    for step in range(held.line_steps):
        upper |= codes[:, :, step] >> np.uint8(4) << np.uint8(step * held.upper_bits)
    if held.upper_bits == 1:
        upper = upper[:, :, : STEP // 2] | upper[:, :, STEP // 2 :] << np.uint8(4)
    return np.concatenate([nibbles, upper], axis=2)


def _scales(held: Quantised, packed: NDArray[Any], scales: NDArray[Any], padded: int) -> Iterator[NDArray[Any]]:
    """The scales of a format's rows by units, in the order of `cplab.kernels.quantised_scales`."""
    units, steps = len(packed) // UNIT, padded // STEP
    if held.scaled == BLOCK:
        yield _filled(scales, padded // BLOCK).reshape(units, UNIT, steps, 2).swapaxes(1, 2)
        return
    of_blocks = packed["scales"].reshape(units, UNIT, steps, 2, 2)  # blocks of a step, halves of a block
    yield of_blocks.transpose(0, 2, 4, 1, 3)
    yield packed["d"].reshape(units, UNIT, -1).swapaxes(1, 2)


def _filled(array: NDArray[Any], columns: int) -> NDArray[Any]:
    """Zeros on the right, up to so many columns."""
    missing = columns - array.shape[1]
    return np.pad(array, ((0, 0), (0, missing))) if missing else array
