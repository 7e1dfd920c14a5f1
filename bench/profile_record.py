"""Where a frame's time goes, digested: the types behind ``bench profile --json``, and how they are made of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from bench.records import CellRecord, ProfileSamples, Ratio
from bench.stats import paired_ratio

PROFILE_SCHEMA = "cplab.profile/1"

#: The field's names for the parts, in the order in which they are shown.
LABELS = {
    "qkv": "q/k/v",
    "attention": "attention",
    "o": "o",
    "gate_up": "gate/up",
    "down": "down",
    "head": "head",
    "norm": "norms",
    "quantise": "quantising",
    "input": "input",
    "choose": "choosing",
    "wait": "waiting",
}


class PartTime(BaseModel):
    """One part of a frame.

    Attributes:
        ms: milliseconds a frame, the mean over the team's members.
        share: of the frame, 0..1.
        bytes: weights that it streams in a frame, all members together.
        gbps: those bytes in that time, GB/s; None where it streams none.
        pass_ms: milliseconds in each pass.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    ms: float
    share: float
    bytes: int
    gbps: float | None
    pass_ms: list[float]


class Profile(BaseModel):
    """One cell's profile.

    Times are means over the half of the traced frames that lies in the middle by its time, the same frames for every
    part, so that parts add up and a frame that something else held up is not among them.

    Attributes:
        frames: pairs of frames that were run.
        frame_ms: a traced frame, as its caller sees it.
        untraced_ms: the median of the frames without the lap timer.
        sum_share: what the parts sum to, as a share of the frame.
        tracing: a traced frame's time over an untraced one's, the median of pairs with its 95 % interval over pairs.
        parts: in the order of `LABELS`.
        waiting_ms: of each member, milliseconds a frame.
        counters: events by name, a frame; ``counters_reason`` says why the processor's own are missing.
        samples: all of it, raw.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(default=PROFILE_SCHEMA, alias="schema")
    variant: str
    format: str
    threads: int
    model: str
    started_utc: str
    frames: int
    passes: int
    frame_ms: float
    untraced_ms: float
    sum_share: float
    tracing: Ratio
    parts: list[PartTime]
    waiting_ms: list[float]
    counters: dict[str, float]
    counters_reason: str
    oversubscribed: bool
    facts: dict[str, Any]
    samples: ProfileSamples


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
    """``pass_ms [passes, parts]`` as parts in the order of LABELS, unknown ones behind."""
    known = [name for name in LABELS if name in samples.parts]
    found = []
    for name in [*known, *(name for name in samples.parts if name not in LABELS)]:
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
