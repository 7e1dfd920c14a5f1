"""Where a frame's time goes: how a profile is made of a worker's samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bench.records import PART_LABELS, CellRecord, PartTime, Profile, ProfileSamples
from bench.stats import paired_ratio


def digest(record: CellRecord, format_name: str) -> Profile:
    """A profile worker's record, digested.

    Raises:
        ValueError: the record holds no profile.
    """
    samples = record.profile
    if samples is None:
        raise ValueError(f"{record.variant} x {record.threads}: a record without a profile")
    middle = middle_half(samples.traced_ns)
    laps_ms = np.array(samples.laps_ns, np.float64)[middle].mean(axis=0) / 1e6  # [members, passes, parts]
    frame_ms = float(np.array(samples.traced_ns)[middle].mean()) / 1e6
    parts = _parts(samples, laps_ms.mean(axis=0), frame_ms)
    tracing = paired_ratio(_pairs(samples.untraced_ns), _pairs(samples.traced_ns))
    assert tracing is not None
    return Profile(
        variant=record.variant,
        format=format_name,
        threads=record.threads,
        model=record.model,
        started_utc=record.started_utc,
        frames=len(samples.traced_ns),
        passes=laps_ms.shape[1],
        frame_ms=frame_ms,
        untraced_ms=float(np.median(samples.untraced_ns)) / 1e6,
        sum_share=sum(part.ms for part in parts) / frame_ms,
        tracing=tracing,
        parts=parts,
        waiting_ms=laps_ms[:, :, samples.parts.index("wait")].sum(axis=1).tolist(),
        counters=samples.counters,
        counters_reason=samples.counters_reason,
        oversubscribed=record.oversubscribed,
        facts=record.facts,
        samples=samples,
    )


def middle_half(times: list[int]) -> NDArray[np.int64]:
    """Indices of the half of ``times`` between the quartiles; at least one."""
    quarter = (len(times) - 1) // 4
    return np.sort(np.argsort(times, kind="stable")[quarter : len(times) - quarter])


def _pairs(times: list[int]) -> dict[int, list[float]]:
    return {i: [float(ns)] for i, ns in enumerate(times)}


def _parts(samples: ProfileSamples, pass_ms: NDArray[np.float64], frame_ms: float) -> list[PartTime]:
    """``pass_ms [passes, parts]`` as parts in the order of PART_LABELS, unknown ones behind."""
    known = [name for name in PART_LABELS if name in samples.parts]
    found = []
    for name in [*known, *(name for name in samples.parts if name not in PART_LABELS)]:
        index = samples.parts.index(name)
        ms, streamed = float(pass_ms[:, index].sum()), samples.part_bytes[index]
        found.append(
            PartTime(
                name=name,
                ms=ms,
                share=ms / frame_ms,
                bytes=streamed,
                gbps=streamed / ms / 1e6 if streamed and ms else None,
                pass_ms=pass_ms[:, index].tolist(),
            )
        )
    return found
