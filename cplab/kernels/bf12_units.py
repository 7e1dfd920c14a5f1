"""Units of 16 rows of packed BF16 (`cplab.formats.bf12`) as the kernel reads them.

A unit is a head and 16 rows, each a whole number of cache lines:

* head: 16 bases (uint8); where each row's exceptions begin and the last one's end (17 uint16); zeros up to 64 bytes;
  then the upper bytes of the exceptions, row after row; right before the rows the places of the same exceptions in
  their rows (uint16). Every unit of a matrix has room for as many as the worst of them needs, so that units are
  equally far apart;
* rows: steps of 96 bytes, see `bf12`.

A decoder interleaves lower and upper bytes by the instruction that every SIMD set has for it, in registers of 16, 32
or 64 bytes, and stores BF16 words in the order in which `vectors.decode_half` wants them. So that all of these store
whole runs, the bytes of a step stand in the order `ORDER`, and exceptions with them; an exception's place is that of
its word after decoding.

A matrix that would not be smaller than plain BF16 is not packed (`cplab.kernels.packing`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats import bf12, bf12_packing
from cplab.kernels.tiles import UNIT, most_steps

#: Bytes of a unit's head without exceptions, and where the places of exceptions stand in it.
HEAD_BYTES, STARTS_AT = 64, 16
#: Longer rows are not packed: a lone token's are read as one chunk of columns, which `bf12_buffer` relies on, and its
#: buffer of 16 rows lies on the stack.
MOST_COLUMNS = bf12.STEP * most_steps(4 * bf12.STEP)
_LINE = 64
_COLUMN = np.arange(bf12.STEP)
#: Where the word of column k of a step stands after decoding: of each 32, the two halves in turn.
WORD_OF = _COLUMN // 32 * 32 + _COLUMN % 16 * 2 + _COLUMN % 32 // 16
#: Where its byte stands before: of 16 bytes, the lower 8 become 8 of the first 32 words, the upper 8 of the second.
ORDER = WORD_OF % 32 // 8 * 16 + WORD_OF // 32 * 8 + WORD_OF % 8


def rows_bytes(n: int) -> int:
    """Bytes of a unit's rows of n columns."""
    return UNIT * bf12.STEP_BYTES * -(-n // bf12.STEP)


def packed_units(words: NDArray[np.uint16]) -> tuple[NDArray[np.uint8], int]:
    """BF16 words ``[rows, n]``, n up to `MOST_COLUMNS`, as ``[rows / 16, unit bytes]``; and how many exceptions.

    A unit whose exceptions are more than a uint16 can count is not to be read. It is larger than plain BF16, which
    `cplab.kernels.packing` prefers from a sixth of that number on.
    """
    rows, n = words.shape
    units = rows // UNIT
    packed = bf12_packing.planes(words, ORDER)
    starts = np.zeros((units, UNIT + 1), np.int64)
    starts[:, 1:] = packed.counts.reshape(units, UNIT).cumsum(1)
    most = int(starts[:, -1].max(initial=0))
    head = -(-(HEAD_BYTES + bf12.EXCEPTION_BYTES * most) // _LINE) * _LINE
    size = head + rows_bytes(n)
    out = np.zeros((units, size), np.uint8)
    out[:, :UNIT] = packed.bases.reshape(units, UNIT)
    out[:, STARTS_AT : STARTS_AT + 2 * (UNIT + 1)] = _bytes(starts.astype(np.uint16))
    columns = packed.columns.astype(np.int64)
    places = columns // bf12.STEP * bf12.STEP + WORD_OF[columns % bf12.STEP]
    rank, count = np.arange(most), starts[:, -1:]
    out[:, HEAD_BYTES : HEAD_BYTES + most][rank < count] = packed.uppers
    from_right = np.zeros((units, most), np.uint16)
    from_right[rank >= most - count] = places
    out[:, head - 2 * most : head] = _bytes(from_right)
    out[:, head:] = packed.steps.reshape(units, -1)
    return out, len(packed.columns)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).view(np.uint8)
