"""Rotary tables: cos and sin for the positions of one frame, from float64, rounded to float32 once.

The table of the published shape is committed with its digest, so that no platform's libm can change a bit of it; a
model with another theta or head width gets its table computed.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from cplab.spec import PRESETS, Spec

_PUBLISHED_FILE = "rope_theta1e6_dim128.npy"
_PUBLISHED_SHA256 = "4b7456dfdfb111d88ef25ef993e9495d590033be65c8dcab615c5a919dafd1cf"


def compute(theta: float, head_dim: int, positions: int) -> NDArray[np.float32]:
    """Table ``[2, positions, head_dim / 2]`` float32 (cos, then sin) with float64 inside."""
    frequency = np.float64(theta) ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angle = np.arange(positions, dtype=np.float64)[:, None] * frequency[None, :]
    return np.stack([np.cos(angle), np.sin(angle)]).astype(np.float32)


def rope_table(spec: Spec) -> NDArray[np.float32]:
    """Table ``[2, spec.positions, spec.head_dim / 2]`` float32 for a model."""
    published = PRESETS["0.6b"]
    same = (spec.rope_theta, spec.head_dim) == (published.rope_theta, published.head_dim)
    if same and spec.positions <= published.positions:
        return np.ascontiguousarray(_committed()[:, : spec.positions])
    return compute(spec.rope_theta, spec.head_dim, spec.positions)


def _committed() -> NDArray[np.float32]:
    with files("cplab").joinpath(_PUBLISHED_FILE).open("rb") as stream:
        table: NDArray[np.float32] = np.load(stream)
    if hashlib.sha256(table.astype("<f4").tobytes()).hexdigest() != _PUBLISHED_SHA256:
        raise RuntimeError(f"{_PUBLISHED_FILE} is damaged: reinstall cplab")
    return table
