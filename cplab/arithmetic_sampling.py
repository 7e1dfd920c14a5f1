"""The law of sampling, scalar and readable: how a code is drawn from logits, bit for bit the same everywhere.

A draw is ``argmax(kept logits + Gumbel noise)``, which has the distribution of the softmax over the kept logits. The
noise is given, or is a pure function of (seed, frame, codebook, code). So a sampled frame is as reproducible as a
greedy one: no state, no order of calls, no generator to be shared.

Logits are kept as the official code keeps them (transformers' TemperatureLogitsWarper, TopKLogitsWarper,
TopPLogitsWarper, in this order), with ties decided where it leaves them open:

1. ``s = logit / temperature``, both float32. One that is not finite is refused, as a logit is.
2. ``top_k``: the k codes that come first when sorted by s, largest first, lower code first among equals. (The official
   code keeps *every* code that equals the k-th.)
3. ``top_p`` below 1: ``p = exp(s - largest) / sum``, summed in that order; a code stays while the probabilities before
   it, summed in that order, are below ``top_p``. So the first one always stays, and what stays is the smallest set
   whose probabilities reach ``top_p``. (The official code sums from the smallest up and removes where that sum is at
   most ``1 - top_p``: the same set but for rounding at its edge, and among equals it is the sort that decides.)
4. The code with the largest ``s + noise``, lowest among equals.

Codes that are barred beforehand, as some of CB0's are (`cplab.cb0`), are left out of all four; the others keep their
order and their noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cplab import constants
from cplab.arithmetic import exp, log
from cplab.jit import jit

_WORD = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_M0, _M1 = (np.uint64(m) for m in constants.PHILOX_MULTIPLIERS)
_W0, _W1 = (np.uint64(w) for w in constants.PHILOX_WEYL)
_ROUNDS = constants.PHILOX_ROUNDS
_UNIT = np.float32(2.0**-24)
_ZERO = np.float32(0)
_ONE = np.float32(1)


@jit()
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Philox4x32-10 of a counter of four words under a key of two, all uint64 below 2**32; four words.

    J. K. Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC 2011.
    """
    for _ in range(_ROUNDS):
        a = _M0 * c0
        b = _M1 * c2
        c0, c1, c2, c3 = (b >> _32) ^ c1 ^ k0, b & _WORD, (a >> _32) ^ c3 ^ k1, a & _WORD
        k0 = (k0 + _W0) & _WORD
        k1 = (k1 + _W1) & _WORD
    return c0, c1, c2, c3


@jit()
def uniform(word: Any) -> Any:
    """The 23 upper bits of a 32-bit word as an odd multiple of 2**-24: never 0, never 1, exact in float32."""
    return np.float32(np.int64(word >> np.uint64(9)) * 2 + 1) * _UNIT


@jit()
def gumbel(seed: Any, frame: Any, codebook: Any, code: Any) -> Any:
    """One sample of Gumbel noise, ``-log(-log(u))``, from -2.81 to 16.64 in steps that its 23 random bits leave.

    ``u`` comes of the first word of Philox at the counter (code, codebook, lower and upper half of the frame's index)
    under the seed's halves as key. Codebooks are counted from CB0 = 0, which is the talker's; pass g draws codebook
    g + 1. All arguments are uint64, ``codebook`` and ``code`` below 2**32.
    """
    words = philox(code, codebook, frame & _WORD, frame >> _32, seed & _WORD, seed >> _32)
    return -log(-log(uniform(words[0])))


@jit()
def gumbel_row(seed: Any, frame: Any, codebook: Any, noise: Any) -> None:
    """`gumbel` for every code of ``noise [vocab]`` f32."""
    for code in range(len(noise)):
        noise[code] = gumbel(seed, frame, codebook, np.uint64(code))


@jit()
def scaled(logits: Any, temperature: Any, s: Any) -> Any:
    """Rule 1: ``s = logits / temperature``, ``[vocab]``; False where one of them is not finite."""
    for code in range(len(logits)):
        s[code] = logits[code] / temperature
    return np.isfinite(s).all()


@jit()
def nucleus(s: Any, order: Any, top_p: Any) -> Any:
    """Rule 3: how many of the codes ``order [n]``, best first, ``top_p`` leaves."""
    p = np.empty(len(order), np.float32)
    total = _ZERO
    for j in range(len(order)):
        p[j] = exp(s[order[j]] - s[order[0]])
        total = total + p[j]
    before = _ZERO
    for j in range(len(order)):
        if before >= top_p:
            return j
        before = before + p[j] / total
    return len(order)


@jit()
def kept(s: Any, top_k: Any, top_p: Any) -> Any:
    """Rules 2 and 3: the codes that may be drawn, best first. ``top_k`` from 1 on, ``top_p`` above 0."""
    order = np.argsort(-s, kind="mergesort")[:top_k]  # a stable sort: the lower code first among equals
    if top_p < _ONE:
        order = order[: nucleus(s, order, top_p)]
    return order


@jit()
def sample(logits: Any, temperature: Any, top_k: Any, top_p: Any, noise: Any) -> Any:
    """The code drawn from ``logits [vocab]`` with ``noise [vocab]``; -1 where a scaled logit is NaN or infinite."""
    s = np.empty_like(logits)
    if not scaled(logits, temperature, s):
        return -1
    order = kept(s, top_k, top_p)
    best = order[0]
    for code in order:
        value, largest = s[code] + noise[code], s[best] + noise[best]
        if value > largest or (value == largest and code < best):
            best = code
    return best
