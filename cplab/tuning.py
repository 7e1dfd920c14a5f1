"""The prefetch distance, found once on each machine and kept: it changes times, never bits.

How far ahead a kernel should ask for its weights depends on the memory behind it, and no table knows that. So a few
distances are tried in turn on real frames, and the best is kept in the cache under the code, the CPU, the format, the
thread count and the size of the model that it was found with: one that fits a cache says nothing of one that streams
from memory. Kernels take a distance as whole groups of rows, one unit at most, so that near distances may be the same
way. A distance that is no better than the default by more than the noise is not taken.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, replacing, writing_to_cache
from cplab.finite_json import finite_json
from cplab.jit import code_digest
from cplab.spec import Spec

#: Distances that are tried, in bytes.
DISTANCES = (2048, 4096, 8192, 12288, 16384, 32768)
#: Frames for each distance.
TRIES = 7
#: How much less time than the default's a distance must take.
LEAST_GAIN = 0.01
#: A kept distance beyond this is damage.
_FARTHEST = 1 << 30


class Tunable(Protocol):
    """A predictor with a prefetch distance that can be set between calls."""

    ahead_bytes: int
    tuning_key: str

    def predict(self, hidden: NDArray[np.float32], cb0_embed: NDArray[np.float32]) -> NDArray[np.int32]:
        """One frame."""
        ...


def tuning_key(format_name: str, threads: int, spec: Spec) -> str:
    """What a distance belongs to: ``bf16 x 2, 80740352 weights a pass``."""
    return f"{format_name} x {threads}, {spec.weights_per_pass} weights a pass"


def found_distance(key: str) -> int | None:
    """The distance that was found here for a `tuning_key`, in bytes, or None."""
    found = _stored().get(key, {}).get("ahead_bytes")
    known = isinstance(found, int) and not isinstance(found, bool) and 0 < found <= _FARTHEST
    return found if known else None


def tune_once(predictor: Tunable, hidden: NDArray[np.float32], cb0_embed: NDArray[np.float32]) -> int:
    """Find a predictor's distance unless this machine has one, keep it, and set it; returns it in bytes.

    Args:
        predictor: right by its gate, warm.
        hidden: ``[F, talker_hidden]``, frames that are run in turn.
        cb0_embed: ``[F, talker_hidden]``.

    Raises:
        CacheError: the cache cannot be written.
    """
    found = found_distance(predictor.tuning_key)
    if found is None:
        found, medians = _search(predictor, hidden, cb0_embed)
        _keep(predictor.tuning_key, found, medians)
    predictor.ahead_bytes = found
    return found


def _search(
    predictor: Tunable, hidden: NDArray[np.float32], cb0_embed: NDArray[np.float32]
) -> tuple[int, dict[int, float]]:
    """The best distance, and the median milliseconds of each; tries are interleaved, so that noise touches all."""
    default = predictor.ahead_bytes
    times: dict[int, list[int]] = {distance: [] for distance in (default, *DISTANCES)}
    for turn in range(TRIES):
        frame = slice(turn % len(hidden), turn % len(hidden) + 1)
        for distance, samples in times.items():
            predictor.ahead_bytes = distance
            started = time.perf_counter_ns()
            predictor.predict(hidden[frame], cb0_embed[frame])
            samples.append(time.perf_counter_ns() - started)
    predictor.ahead_bytes = default
    medians = {distance: statistics.median(samples) / 1e6 for distance, samples in times.items()}
    best = min(medians, key=lambda distance: medians[distance])
    return (best if medians[best] < (1 - LEAST_GAIN) * medians[default] else default), medians


def _path() -> Path:
    return cache_dir() / "tuned" / f"{platform.node() or 'machine'}-{code_digest()}.json"


def _stored() -> dict[str, Any]:
    """What was found on this machine with this code; a damaged file counts as none."""
    try:
        stored = json.loads(_path().read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return stored if isinstance(stored, dict) and all(isinstance(one, dict) for one in stored.values()) else {}


def _keep(key: str, distance: int, medians: dict[int, float]) -> None:
    with writing_to_cache(_path()), replacing(_path()) as temporary:
        entry = {"ahead_bytes": distance, "median_ms": {str(d): round(ms, 3) for d, ms in medians.items()}}
        temporary.write_text(finite_json(_stored() | {key: entry}, indent=1) + "\n", encoding="utf-8")
