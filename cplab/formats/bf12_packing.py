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
        bases: uint8 ``[rows]``, the upper byte without its sign of code 0.
        steps: uint8 ``[rows, steps, 96]``: 64 lower bytes and 32 bytes of codes, the first 32 weights' in their lower
            nibbles.
        counts: int64 ``[rows]`` exceptions.
        exceptions: uint16 ``[sum of counts, 2]``: column and word, row after row, columns ascending.
    """

    bases: NDArray[np.uint8]
    steps: NDArray[np.uint8]
    counts: NDArray[np.int64]
    exceptions: NDArray[np.uint16]


def planes(words: NDArray[np.uint16], order: NDArray[np.int64] = bf12.IN_TURN) -> Planes:
    """Pack rows of BF16 words ``[rows, n]``, up to `bf12.MOST_COLUMNS` each; ``order [64]``: where columns stand."""
    rows, n = words.shape
    bases, counts = windows(words)
    steps = np.zeros((rows, -(-n // bf12.STEP), bf12.STEP_BYTES), np.uint8)
    exceptions = np.empty((int(counts.sum()), 2), np.uint16)
    _cut(words, bases, order, steps, exceptions)
    return Planes(bases, steps, counts, exceptions)


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
    found: NDArray[np.uint16] = (upper << np.uint16(8) | low)[:, :, order].reshape(rows, steps * bf12.STEP)[:, :n]
    found[np.repeat(np.arange(rows), packed.counts), packed.exceptions[:, 0]] = packed.exceptions[:, 1]
    return found


@jit()
def _choose(words: Any, width: int, bases: Any, counts: Any) -> None:
    """Fill in what `windows` gives."""
    for r in range(len(words)):
        pairs = np.zeros(128, np.int64)
        for word in words[r]:
            pairs[(word >> 8) & 0x7F] += 1
        inside = pairs[:width].sum()
        best, most = 0, inside
        for base in range(1, 128 - width + 1):
            inside += pairs[base + width - 1] - pairs[base - 1]
            if inside > most:
                best, most = base, inside
        bases[r] = best
        counts[r] = words.shape[1] - most


@jit()
def _cut(words: Any, bases: Any, order: Any, steps: Any, exceptions: Any) -> None:
    """Fill ``steps [rows, steps, 96]``, zeros before, and ``exceptions [count, 2]``, whose codes mean nothing."""
    found = 0
    for r in range(len(words)):
        for k in range(words.shape[1]):
            word = int(words[r, k])
            pair = ((word >> 8) & 0x7F) - int(bases[r])
            if pair < 0 or pair >= bf12.WINDOW:
                exceptions[found, 0] = k
                exceptions[found, 1] = word
                found += 1
            code = (pair & 7) | ((word >> 12) & 8)
            s, at = k // bf12.STEP, order[k % bf12.STEP]
            steps[r, s, at] = word & 0xFF
            if at < bf12.STEP // 2:
                steps[r, s, bf12.STEP + at] |= code
            else:
                steps[r, s, bf12.STEP // 2 + at] |= code << 4
