"""Rows of BF16 words cut into the planes of `cplab.formats.bf12`, and put together again; imported only to pack."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cplab.formats import bf12
from cplab.jit import jit


class Planes(NamedTuple):
    """Rows of BF16 words, packed.

    Attributes:
        bases: uint8 ``[rows]``, the pair before the window.
        steps: uint8 ``[rows, steps, 96]``: 64 lower bytes and 32 bytes of codes, the first 32 weights' in their lower
            nibbles; columns that a row does not have are zeros.
        counts: int64 ``[rows]`` exceptions.
        columns: uint16 ``[sum of counts]`` of the exceptions, row after row, step after step; within a step in the
            order in which its bytes stand.
        uppers: uint8 ``[sum of counts]``, their upper bytes.
    """

    bases: NDArray[np.uint8]
    steps: NDArray[np.uint8]
    counts: NDArray[np.int64]
    columns: NDArray[np.uint16]
    uppers: NDArray[np.uint8]


def planes(words: NDArray[np.uint16], order: NDArray[np.int64] = bf12.IN_TURN) -> Planes:
    """Pack rows of BF16 words ``[rows, n]``; ``order [64]``: where columns stand.

    Raises:
        ValueError: rows are longer than the place of an exception can say, `bf12.PLACES`.
    """
    rows, n = words.shape
    if n > bf12.PLACES:
        raise ValueError(f"rows of {n} columns: an exception's place is one of {bf12.PLACES}")
    bases, counts = windows(words)
    steps = np.zeros((rows, -(-n // bf12.STEP), bf12.STEP_BYTES), np.uint8)
    columns, uppers = np.empty(counts.sum(), np.uint16), np.empty(counts.sum(), np.uint8)
    _cut(words, bases, np.argsort(order), steps, columns, uppers)
    return Planes(bases, steps, counts, columns, uppers)


def windows(words: NDArray[np.uint16], pairs: int = bf12.WINDOW) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The window of each row of ``words [rows, n]`` with the fewest exceptions: bases and counts, ``[rows]`` both."""
    bases, counts = np.empty(len(words), np.uint8), np.empty(len(words), np.int64)
    _choose(words, pairs, bases, counts)
    return bases, counts


def words(packed: Planes, n: int, order: NDArray[np.int64] = bf12.IN_TURN) -> NDArray[np.uint16]:
    """The BF16 words ``[rows, n]`` of packed rows."""
    rows, steps, _ = packed.steps.shape
    low, codes = packed.steps[:, :, : bf12.STEP].astype(np.uint16), packed.steps[:, :, bf12.STEP :]
    code = np.concatenate([codes & np.uint8(15), codes >> np.uint8(4)], axis=2).astype(np.uint16)
    upper = (code & np.uint16(7)) + packed.bases[:, None, None] | (code & np.uint16(8)) << np.uint16(4)
    upper[code == bf12.ZERO] = 0
    found: NDArray[np.uint16] = (upper << np.uint16(8) | low)[:, :, order].reshape(rows, steps * bf12.STEP)[:, :n]
    at = np.repeat(np.arange(rows), packed.counts), packed.columns
    found[at] = found[at] & np.uint16(0xFF) | packed.uppers.astype(np.uint16) << np.uint16(8)
    return found


@jit()
def _choose(words: Any, width: int, bases: Any, counts: Any) -> None:
    """Fill in what `windows` gives."""
    for r in range(len(words)):
        pairs, zeros = np.zeros(128, np.int64), 0
        for word in words[r]:
            if word < 0x100:
                zeros += 1  # have a code of their own
            else:
                pairs[(word >> 8) & 0x7F] += 1
        inside = pairs[1 : 1 + width].sum()
        best, most = 0, inside
        for base in range(1, 128 - width):
            inside += pairs[base + width] - pairs[base]
            if inside > most:
                best, most = base, inside
        bases[r] = best
        counts[r] = words.shape[1] - most - zeros


@jit()
def _cut(words: Any, bases: Any, column_of: Any, steps: Any, columns: Any, uppers: Any) -> None:
    """Fill ``steps [rows, steps, 96]``, zeros before, and the lists; ``column_of [64]``: whose bytes stand where."""
    found, half = 0, bf12.STEP // 2
    for r in range(len(words)):
        for s in range(steps.shape[1]):
            for at in range(bf12.STEP):
                k, code = s * bf12.STEP + column_of[at], bf12.ZERO
                if k < words.shape[1]:
                    word = int(words[r, k])
                    steps[r, s, at] = word & 0xFF
                    pair = ((word >> 8) & 0x7F) - int(bases[r])
                    if 1 <= pair <= bf12.WINDOW:
                        code = pair | ((word >> 12) & 8)
                    elif word >= 0x100:
                        code = bf12.EXCEPTION
                        columns[found] = k
                        uppers[found] = word >> 8
                        found += 1
                steps[r, s, bf12.STEP + at % half] |= code << 4 if at >= half else code
