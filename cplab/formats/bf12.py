"""BF16 at about 12 bits, nothing lost: what a packed row says.

A BF16 number is two bytes. The lower one (the exponent's last bit and the mantissa) is noise and is kept as it is. The
upper one (sign, and the exponent without its last bit) takes few values: of a row of weights nearly all lie within
seven neighbouring exponent pairs, 13 or 14 binades. So a row has a *base*, the pair before its window, and the upper
byte becomes a code of four bits:

====================  ==============================================
0                     an exception: the byte stands in a list
1 .. 7                positive, the pair ``base + code``
8                     the byte 0: zero, and what is next to it
9 .. 15               negative, the pair ``base + code - 8``
====================  ==============================================

A decoder looks the byte up, one shuffle for 16 to 64 of them, where a distance subtracted from an exponent takes half a
dozen instructions on wider lanes. The window is the one with the fewest exceptions.

An exception (-0 and negative denormals, as a rule NaN, infinities and tiny weights) is told by its code, so that a
step's exceptions are a mask, and the list need not say where they belong: an instruction that spreads the list's next
bytes over a mask puts them there. That costs an eighth pair, and buys a decoder without branches. Two bytes more, the
place in the row, are for decoders that store exceptions over what they decoded.

Why not less. `python -m cplab packing` prints for every matrix the entropy of its exponents, and what half a window
would come to (`NARROWER`: two bits for the pair, 11 bits a weight). The entropy ends near 10.5 bits: sign and mantissa
are noise of eight, the exponents of a normal distribution take about two and a half. Half a window leaves out what is
smaller than about a 64th of the row's largest, of a normal distribution 4 to 8 % (where in its pair the largest lies
decides): at three bytes each these take back the bit that was gained, or two (at one, without places, a third to two
thirds of it), and codes of three bits lie across bytes. A code of variable length gets nearer to the entropy and is
decoded one weight after another. So codes are nibbles.

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
WINDOW, NARROWER = 7, 3
#: The codes of an exception, and of an upper byte that is 0.
EXCEPTION, ZERO = 0, 8
#: Bytes that an exception takes: the upper byte of the weight, and its place.
EXCEPTION_BYTES = 3
#: Weights of a row that are packed at a time: as many lower bytes, then half as many bytes with two codes each.
STEP = 64
STEP_BYTES = STEP + STEP // 2
#: Places of a row that an exception can name.
PLACES = 1 << 16
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
