"""The oracle's teacher-forced logits of a golden's frames, kept in the cache: a second and more a frame to make.

They are those of `Golden.forced`, whose digests the golden carries, so that a kept row is believed only where its
digest is the golden's.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cplab.cachedir import cache_dir, replacing, writing_to_cache
from cplab.errors import GoldenError
from cplab.golden import Golden, row_digests
from cplab.model import Model
from cplab.oracle import Oracle

Logits = NDArray[np.float32]


def scored_logits(model: Model, golden: Golden, frames: int) -> Logits:
    """``[frames, groups-1, vocab]`` f32: what the oracle says where ``golden.forced`` is fed back.

    Raises:
        GoldenError: this machine's oracle does not give the golden's digests.
        CacheError: the cache cannot be written.
    """
    golden.require(model)
    path = cache_dir() / "scored" / f"{golden.digest}.npz"
    names = [golden.forced_digests[i, 0].tobytes().hex() for i in range(frames)]
    kept = _kept(path)
    rows = {name: kept[name] for i, name in enumerate(names) if name in kept and _right(kept[name], golden, i)}
    missing = [i for i, name in enumerate(names) if name not in rows]
    if missing:
        oracle = Oracle(model)

        def score(i: int) -> Logits:
            return oracle.scored(golden.hidden[i], golden.cb0_embed[i], golden.forced[i]).logits

        with ThreadPoolExecutor(2) as pool:  # compiled scalar code lets go of Python's lock
            for i, logits in zip(missing, pool.map(score, missing), strict=True):
                if not _right(logits, golden, i):
                    raise GoldenError(f"frame {i}: the golden's digests are not those of this machine's oracle")
                rows[names[i]] = logits
        with writing_to_cache(path), replacing(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, **(kept | rows))
    return np.stack([rows[name] for name in names])


def _right(logits: Logits, golden: Golden, i: int) -> bool:
    wanted = golden.forced_digests[i]
    return logits.ndim == 2 and len(logits) == len(wanted) and bool((row_digests(logits) == wanted).all())


def _kept(path: Path) -> dict[str, Logits]:
    """What an earlier run kept; a damaged file counts as none."""
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception:  # noqa: BLE001 -- zipfile, zlib and numpy each have their own errors for damage
        return {}
