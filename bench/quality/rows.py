"""Distances of logit rows: what llama.cpp's ``--kl-divergence`` tells of tokens, here of codebooks.

All sums are in float64. A row with a value that is not finite gives figures that are not finite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

TOP = 5


def kl_divergence(logits: Float32, truth: Float32) -> Float64:
    """``sum p log(p / q)`` in nats, p the softmax of ``truth``, q that of ``logits``; ``[..., vocab] -> [...]``."""
    log_p = log_softmax(truth.astype(np.float64), axis=-1)
    log_q = log_softmax(logits.astype(np.float64), axis=-1)
    total: Float64 = np.sum(np.exp(log_p) * (log_p - log_q), axis=-1)
    return np.maximum(total, 0.0)  # rounding takes the divergence of equal rows below 0; NaN stays


def probability_change(logits: Float32, truth: Float32) -> Float64:
    """How the probability of the code that ``truth`` chooses changes, ``[..., vocab] -> [...]``."""
    chosen = np.argmax(truth, axis=-1)[..., None]
    p, q = (
        np.exp(np.take_along_axis(log_softmax(x.astype(np.float64), axis=-1), chosen, axis=-1)) for x in (truth, logits)
    )
    change: Float64 = (q - p)[..., 0]
    return change


def top_overlap(logits: Float32, truth: Float32, top: int = TOP) -> Float64:
    """Share of the ``top`` largest logits' codes that both have, ``[..., vocab] -> [...]``; the lowest of equals."""
    sets = []
    for x in (logits, truth):
        best = np.argsort(-x, axis=-1, kind="stable")[..., :top]
        inside = np.zeros(x.shape, np.bool_)
        np.put_along_axis(inside, best, values=True, axis=-1)
        sets.append(inside)
    shared: Float64 = (sets[0] & sets[1]).sum(axis=-1) / min(top, truth.shape[-1])
    return shared


def mean_square(logits: Float32, truth: Float32) -> Float64:
    """Mean square difference, ``[..., vocab] -> [...]``."""
    square: Float64 = np.mean(np.square(logits.astype(np.float64) - truth), axis=-1)
    return square


def cosine(logits: Float32, truth: Float32) -> Float64:
    """Cosine of the angle between two rows, ``[..., vocab] -> [...]``; NaN where one is all zeros."""
    a, b = logits.astype(np.float64), truth.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        angle: Float64 = np.sum(a * b, axis=-1) / np.sqrt(np.sum(a * a, axis=-1) * np.sum(b * b, axis=-1))
    return angle
