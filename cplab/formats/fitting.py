"""Q4_0 blocks fitted to what a matrix reads: the same 18 bytes, other scales and integers.

The gguf package takes the scale from the largest weight alone. Here several are tried, and the one that makes the least
weighted square error is kept: ``sum_k e_k (w_k - d q_k)^2`` over a block, ``e_k`` the mean square of the input of
column k. Where inputs are uncorrelated that is the expected square error of the output. For the integers of a trial the
best scale is a weighted least squares fit; it is then rounded to float16, and the integers are made anew for it. (The
idea is that of llama.cpp's importance matrices and its ``make_qx_quants``.) A block for which nothing is better than
the gguf package's stays that one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.formats import q4_0
from cplab.jit import jit

#: What the largest weight of a block is tried as; it need not be a whole number, since others round better so.
TARGETS = np.concatenate([np.arange(-9, -6, 0.25), np.arange(6, 8.75, 0.25)])
#: Of the mean input energy: what every column counts at least, since frames that were not seen may use it.
_LEAST_ENERGY = 0.01


def pack(weights: NDArray[np.float32], energy: NDArray[np.float64]) -> NDArray[Any]:
    """``[rows, n]`` and the mean square input of each column ``[n]`` -> Q4_0 blocks ``[rows, n / 32]``.

    Raises:
        BadInputError: energies of another length, negative, or not finite.
        UnpackableError: as `cplab.formats.q4_0.pack`.
    """
    rows, n = weights.shape
    if energy.shape != (n,) or not np.isfinite(energy).all() or (energy < 0).any():
        raise BadInputError(f"energies are {list(energy.shape)}; {n} that are finite and not negative are wanted")
    plain = q4_0.pack(weights)
    blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, q4_0.BLOCK)
    each = (energy + (_LEAST_ENERGY * energy.mean() or 1.0)).reshape(-1, q4_0.BLOCK)
    d = np.zeros(len(blocks), np.float64)
    _fit(blocks, each, TARGETS, d)
    with np.errstate(over="ignore", under="ignore"):
        held = d.astype(np.float32).astype(np.float16)
    flat = plain.reshape(-1)
    integers = np.zeros((len(blocks), q4_0.BLOCK), np.int8)
    better = np.zeros(len(blocks), np.bool_)
    old_d, old_q = flat["d"].astype(np.float64), q4_0.quants(flat).reshape(-1, q4_0.BLOCK)
    _requantise(blocks, each, held.astype(np.float64), old_d, old_q, integers, better)
    stored = (integers + np.int8(8)).view(np.uint8)
    half = q4_0.BLOCK // 2
    packed = flat.copy()
    packed["d"][better] = held[better]
    packed["qs"][better] = (stored[:, :half] | stored[:, half:] << np.uint8(4))[better]
    return packed.reshape(rows, -1)


@jit()
def _nearest(x: Any, inverse: Any) -> Any:
    """The integer of -8..7 nearest to ``x * inverse``."""
    return min(max(np.floor(x * inverse + 0.5), -8.0), 7.0)


@jit()
def _fit(blocks: Any, energy: Any, targets: Any, d: Any) -> None:
    """The best unrounded scale of each of ``blocks [b, 32]``; 0 where there is none. ``energy [n / 32, 32]``."""
    for b in range(len(blocks)):
        e = energy[b % len(energy)]
        largest = 0.0
        for k in range(32):
            if abs(blocks[b, k]) > abs(largest):
                largest = np.float64(blocks[b, k])
        if largest == 0.0:
            continue
        most = 0.0
        for target in targets:
            inverse = target / largest
            if not abs(inverse) < np.inf:
                continue
            both, square = 0.0, 0.0
            for k in range(32):
                q = _nearest(np.float64(blocks[b, k]), inverse)
                both += e[k] * blocks[b, k] * q
                square += e[k] * q * q
            # With its best scale, both / square, a trial takes both^2 / square off the square error.
            if square > 0.0 and both * both > most * square:
                most = both * both / square
                d[b] = both / square


@jit()
def _requantise(blocks: Any, energy: Any, d: Any, old_d: Any, old_q: Any, q: Any, better: Any) -> None:
    """Integers ``q [b, 32]`` for scales ``d [b]``, and where their error is less than that of the old ones."""
    for b in range(len(blocks)):
        if d[b] == 0.0 or not abs(d[b]) < np.inf:
            continue
        e = energy[b % len(energy)]
        error, before = 0.0, 0.0
        for k in range(32):
            x = np.float64(blocks[b, k])
            nearest = _nearest(x, 1.0 / d[b])
            q[b, k] = np.int8(nearest)
            error += e[k] * (x - d[b] * nearest) ** 2
            before += e[k] * (x - old_d[b] * old_q[b, k]) ** 2
        better[b] = error < before
