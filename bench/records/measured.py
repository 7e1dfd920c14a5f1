"""What worker processes measured, raw: the types behind ``records.jsonl``."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

RECORD_SCHEMA = "cplab.record/1"

Status = Literal["pass", "fail", "crash", "skip"]
Tier = Literal["exact", "codes", "quality"]


class Frozen(BaseModel):
    """What all types of records have in common: they do not change, know every field, and hold no NaN or infinity.

    JSON has neither, and null in a figure's place could not be read back.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CheckResult(Frozen):
    """One check of the gate: what it looks at and whether it held."""

    name: str
    passed: bool
    detail: str = ""


class GateOutcome(Frozen):
    """What the gate said of one cell.

    ``codes_matched / codes_total`` and ``frames_matched / frames_total`` count the free-running comparison with
    the golden. ``detail`` is one line: the first difference where there is one, else what was checked.
    """

    status: Status
    detail: str
    codes_matched: int = 0
    codes_total: int = 0
    frames_matched: int = 0
    frames_total: int = 0
    checks: list[CheckResult] = Field(default_factory=list)


class RoofSample(Frozen):
    """One pass over a cell's own packed weights by a kernel that only reads.

    Attributes:
        prefetch_bytes: how far ahead of its reads the kernel prefetched.
        rows: how many rows it read at once.
        ns: time for one frame's worth of reads (15 passes), nanoseconds.
        bytes: bytes read in that time.
    """

    prefetch_bytes: int
    rows: int
    ns: int
    bytes: int


class ProfileSamples(Frozen):
    """Frames with and without a lap timer, in turn, in one process.

    Attributes:
        parts: names of the parts of a frame.
        part_bytes: bytes of weights that each part streams in a frame; 0 where it streams none.
        traced_ns: wall time of each frame with the timer, as the caller sees it.
        untraced_ns: the same of each frame without it; frame i of both is a pair.
        laps_ns: ``[frames][members][passes][parts]``, of the traced frames.
        counters: events by name, a frame (`bench.perf_counters`).
        counters_reason: why the processor's own events are missing, or "".
    """

    parts: list[str]
    part_bytes: list[int]
    traced_ns: list[int]
    untraced_ns: list[int]
    laps_ns: list[list[list[list[int]]]]
    counters: dict[str, float] = Field(default_factory=dict)
    counters_reason: str = ""


class CellRecord(Frozen):
    """One line of ``records.jsonl``: what one worker process measured of one cell in one round.

    Attributes:
        samples_ns: wall time of each timed frame, raw, nothing dropped.
        pass_ns: per frame, the time of each pass, in order (empty for variants that cannot tell).
        warmup_ns: the frames run before timing began, apart.
        first_call_ns: the first ``predict`` of the process (compiled code is loaded there).
        compile_s: time spent compiling or loading compiled code before the first call.
        frame_ids: which golden frames the timed calls ran, one for each sample.
        oversubscribed: more threads than CPUs that affinity and cgroup allow.
        twin_of: the variant that this one is under another name, where a cell is measured twice for the run's noise.
        revision: the commit whose code ran, where that was another tree's; "" for the tree of the run.
        sample_at_ns: of a soak, when each sample began, after the first.
        profile: where the time of frames went, of a profile worker.
        prefill_ns: of the talker, its prefill; its ``samples_ns`` are single steps.
        facts: what the worker read back: affinity, threading layer, instruction set, load before and after.
    """

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    variant: str
    threads: int
    model: str
    round: int
    order: int
    phase: Literal["gate", "timed", "profile", "soak", "talker_trial", "talker"]
    gate: GateOutcome
    samples_ns: list[int] = Field(default_factory=list)
    pass_ns: list[list[int]] = Field(default_factory=list)
    frame_ids: list[int] = Field(default_factory=list)
    warmup_ns: list[int] = Field(default_factory=list)
    first_call_ns: int | None = None
    load_s: float | None = None
    compile_s: float | None = None
    rss_mb: float | None = None
    bytes_per_frame: int | None = None
    passes_per_frame: int | None = None
    roof: list[RoofSample] = Field(default_factory=list)
    profile: ProfileSamples | None = None
    oversubscribed: bool = False
    twin_of: str = ""
    revision: str = ""
    sample_at_ns: list[int] = Field(default_factory=list)
    prefill_ns: int | None = None
    started_utc: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="after")
    def _no_time_without_a_passed_gate(self) -> Self:
        timed = self.samples_ns or self.pass_ns or self.roof or self.profile or self.prefill_ns
        if timed and self.gate.status != "pass":
            raise ValueError(f"{self.variant} x {self.threads}: times on a record whose gate says {self.gate.status}")
        return self
