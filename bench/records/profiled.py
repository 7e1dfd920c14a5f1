"""Where a frame's time goes, digested: the types behind ``profile.json`` and ``bench profile --json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from bench.records.files import read_if_there
from bench.records.measured import Frozen, ProfileSamples
from bench.records.summarised import Ratio

PROFILE_SCHEMA = "cplab.profile/1"
PROFILE_FILE = "profile.json"

#: The field's names for the parts, in the order in which they are shown.
PART_LABELS = {
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


class PartTime(Frozen):
    """One part of a frame.

    Attributes:
        ms: milliseconds a frame, the mean over the team's members.
        share: of the frame, 0..1.
        bytes: weights that it streams in a frame, all members together.
        gbps: those bytes in that time, GB/s; None where it streams none.
        pass_ms: milliseconds in each pass.
    """

    name: str
    ms: float
    share: float
    bytes: int
    gbps: float | None
    pass_ms: list[float]


class Profile(Frozen):
    """One cell's profile.

    Times are means over the half of the traced frames that lies in the middle by its time, the same frames for every
    part, so that parts add up and a frame that something else held up is not among them.

    Attributes:
        frames: pairs of frames that were run.
        frame_ms: a traced frame, as its caller sees it.
        untraced_ms: the median of the frames without the lap timer.
        sum_share: what the parts sum to, as a share of the frame.
        tracing: a traced frame's time over an untraced one's, the median of pairs with its 95 % interval over pairs.
        parts: in the order of `PART_LABELS`.
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


def read_profile(path: Path) -> Profile | None:
    """Read a profile; None where there is none, as in folders of older versions.

    Raises:
        UnreadableRecordError: it cannot be read, or has a schema that this version does not know.
    """
    return read_if_there(path, Profile, PROFILE_SCHEMA)
