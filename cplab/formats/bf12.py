"""BF16 at about 12 bits, nothing lost: what a packed row says, and how rows are cut into it and put together again.

A BF16 number is two bytes. The lower one (the exponent's last bit and the mantissa) is noise and is kept as it is. The
upper one (sign, and the exponent without its last bit) takes few values: of a row of weights nearly all lie within
eight neighbouring exponent pairs, 15 or 16 binades. So a row has a *base*, the first pair of its window, and the upper
byte becomes four bits: the sign, and the pair's place in the window. A decoder looks the byte up, one shuffle for 16 to
64 of them, where a distance subtracted from an exponent takes half a dozen instructions on wider lanes.

What is out of the window (zeros, denormals, NaN, infinities, tiny weights) is an *exception*: its place in the row and
its 16 bits in a list, four bytes each. The window is the one with the fewest of them.

Why not less. `python -m cplab packing` prints for every matrix the entropy of its exponents, and what half a window
would come to (`NARROWER`: two bits for the pair, 11 bits a weight). The entropy ends near 10.5 bits: sign and mantissa
are noise of eight, the exponents of a normal distribution take about two and a half. Half a window leaves out what is
smaller than about a 256th of the row's largest, of a normal distribution a hundredth and more: at four bytes each these
take back a third to two thirds of the bit that was gained. What remains, a twentieth at best, is less than a decoder
would ask for it: a dependent store of 16 bits for each exception, ten a row and more where now most rows have none, and
codes of three bits, which lie across bytes. That is an estimate and no measurement. A code of variable length gets
nearer to the entropy and is decoded one weight after another. So a window has eight pairs, and codes are nibbles.

An array of this format holds BF16 words, as `bf16` does; the planes are made where a matrix is laid out for a kernel
(`cplab.kernels.bf12_units`). The format lives in memory only: files hold BF16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cplab.formats import bf16
from cplab.formats.format import Format
from cplab.jit import jit

#: Exponent pairs of a window, and of one whose codes would have a bit less.
WINDOW, NARROWER = 8, 4
#: Bytes that an exception takes.
EXCEPTION_BYTES = 4
#: Weights of a row that are packed at a time: `LOW_BYTES` lower bytes, then half as many with two codes each.
STEP = 64
STEP_BYTES = STEP + STEP // 2
#: Places of a row that an exception can name.
MOST_COLUMNS = 1 << 16
#: A step's columns in their own order.
IN_TURN = np.arange(STEP)


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


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """As `bf16.pack`, and a NaN that BF16 holds keeps its payload."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    upper = (bits >> np.uint32(16)).astype(np.uint16)
    if not (bits & np.uint32(0xFFFF)).any():
        return upper
    return np.where(bits & np.uint32(0xFFFF), bf16.pack(weights), upper)


def planes(words: NDArray[np.uint16], order: NDArray[np.int64] = IN_TURN) -> Planes:
    """Pack rows of BF16 words ``[rows, n]``, n up to `MOST_COLUMNS`; ``order [64]`` is where a step's columns stand."""
    rows, n = words.shape
    bases, counts = windows(words)
    steps = np.zeros((rows, -(-n // STEP), STEP_BYTES), np.uint8)
    exceptions = np.empty((int(counts.sum()), 2), np.uint16)
    _cut(words, bases, order, steps, exceptions)
    return Planes(bases, steps, counts, exceptions)


def windows(words: NDArray[np.uint16], pairs: int = WINDOW) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The window of each row of ``words [rows, n]`` with the fewest exceptions: bases and counts, ``[rows]`` both."""
    bases, counts = np.empty(len(words), np.uint8), np.empty(len(words), np.int64)
    _choose(words, pairs, bases, counts)
    return bases, counts


def words(packed: Planes, n: int, order: NDArray[np.int64] = IN_TURN) -> NDArray[np.uint16]:
    """The BF16 words ``[rows, n]`` of packed rows."""
    rows, steps, _ = packed.steps.shape
    low, codes = packed.steps[:, :, :STEP].astype(np.uint16), packed.steps[:, :, STEP:]
    code = np.concatenate([codes & np.uint8(15), codes >> np.uint8(4)], axis=2).astype(np.uint16)
    upper = (code & np.uint16(7)) + packed.bases[:, None, None] | (code & np.uint16(8)) << np.uint16(4)
    found: NDArray[np.uint16] = (upper << np.uint16(8) | low)[:, :, order].reshape(rows, steps * STEP)[:, :n]
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
            if pair < 0 or pair >= WINDOW:
                exceptions[found, 0] = k
                exceptions[found, 1] = word
                found += 1
            code = (pair & 7) | ((word >> 12) & 8)
            s, at = k // STEP, order[k % STEP]
            steps[r, s, at] = word & 0xFF
            if at < STEP // 2:
                steps[r, s, STEP + at] |= code
            else:
                steps[r, s, STEP // 2 + at] |= code << 4


FORMAT = Format("bf12", np.dtype(np.uint16), 12, pack, bf16.unpack, bf16.finite, code=5, in_files=False)
