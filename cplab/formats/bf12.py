"""BF16 at about 12 bits, nothing lost: what a packed row says.

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
(`cplab.formats.bf12_packing`, `cplab.kernels.bf12_units`). The format lives in memory only: files hold BF16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.formats import bf16
from cplab.formats.format import Format

#: Exponent pairs of a window, and of one whose codes would have a bit less.
WINDOW, NARROWER = 8, 4
#: Bytes that an exception takes.
EXCEPTION_BYTES = 4
#: Weights of a row that are packed at a time: as many lower bytes, then half as many bytes with two codes each.
STEP = 64
STEP_BYTES = STEP + STEP // 2
#: Places of a row that an exception can name.
MOST_COLUMNS = 1 << 16
#: A step's columns in their own order.
IN_TURN = np.arange(STEP)


def pack(weights: NDArray[np.float32]) -> NDArray[Any]:
    """As `bf16.pack`, and a NaN that BF16 holds keeps its payload."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    upper = (bits >> np.uint32(16)).astype(np.uint16)
    if not (bits & np.uint32(0xFFFF)).any():
        return upper
    return np.where(bits & np.uint32(0xFFFF), bf16.pack(weights), upper)


FORMAT = Format("bf12", np.dtype(np.uint16), 12, pack, bf16.unpack, bf16.finite, code=5, in_files=False)
