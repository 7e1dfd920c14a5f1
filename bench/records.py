"""What a measurement is, as data: the types behind ``records.jsonl``, ``summary.json`` and ``machine.json``.

This module imports nothing of the lab, so that reports (and anybody else's scripts) can read results without
being able to run anything. Times are integers in nanoseconds in raw records and floats in milliseconds in
summaries; the unit stands in every name.

The one rule that the types enforce: a record cannot hold a time unless its gate passed (the idea is
flashinfer-bench's; see `CellRecord` and `CellSummary`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SWEEP_SCHEMA = "cplab.sweep/1"
RECORD_SCHEMA = "cplab.record/1"
MACHINE_SCHEMA = "cplab.machine/1"

Status = Literal["pass", "fail", "crash", "skip"]
Tier = Literal["exact", "codes", "quality"]


class UnreadableRecordError(ValueError):
    """A file that should hold records does not, or was written by a newer version of the lab."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CheckResult(_Frozen):
    """One check of the gate: what it looks at and whether it held."""

    name: str
    passed: bool
    detail: str = ""


class GateOutcome(_Frozen):
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


class RoofSample(_Frozen):
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


class ProfileSamples(_Frozen):
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


class CellRecord(_Frozen):
    """One line of ``records.jsonl``: what one worker process measured of one cell in one round.

    Attributes:
        samples_ns: wall time of each timed frame, raw, nothing dropped.
        pass_ns: per frame, the time of each pass, in order (empty for variants that cannot tell).
        warmup_ns: the frames run before timing began, apart.
        first_call_ns: the first ``predict`` of the process (compiled code is loaded there).
        compile_s: time spent compiling or loading compiled code before the first call.
        frame_ids: which golden frames the timed calls ran, one for each sample.
        oversubscribed: more threads than CPUs that affinity and cgroup allow.
        profile: where the time of frames went, of a profile worker.
        facts: what the worker read back: affinity, threading layer, instruction set, load before and after.
    """

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    variant: str
    threads: int
    model: str
    round: int
    order: int
    phase: Literal["gate", "timed", "profile"]
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
    started_utc: str = ""
    facts: dict[str, Any] = Field(default_factory=dict)
    reason: str = ""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @model_validator(mode="after")
    def _no_time_without_a_passed_gate(self) -> Self:
        timed = self.samples_ns or self.pass_ns or self.roof or self.profile
        if timed and self.gate.status != "pass":
            raise ValueError(f"{self.variant} x {self.threads}: times on a record whose gate says {self.gate.status}")
        return self


class Interval(_Frozen):
    """Milliseconds: the median over rounds of per-round medians, its 95 % bootstrap interval, the least sample."""

    p50: float
    lo: float
    hi: float
    min: float


class Ratio(_Frozen):
    """A ratio of two cells, paired by round, with its 95 % bootstrap interval."""

    ratio: float
    lo: float
    hi: float


class Fidelity(_Frozen):
    """Share of codes equal to the f32 golden's, 0..1; None where it was not measured."""

    teacher_forced: float | None = None
    free_running: float | None = None


class CellSummary(_Frozen):
    """A cell over all its rounds. Without a passed gate every time is None.

    ``exact`` is true only for tier ``exact`` with arithmetic ``f32`` and a lossless pack. ``roof_ms`` is the time
    that the best read-only kernel took for the same bytes, ``roof_fraction = roof_ms / cp_ms.p50``. ``engine_note`` is
    what a variant over a foreign engine says of it: the settings it took, and why.
    """

    variant: str
    format: str
    arithmetic: str
    tier: Tier
    threads: int
    gate: Status
    gate_detail: str
    exact: bool
    rounds: int = 0
    frames: int = 0
    cp_ms: Interval | None = None
    round_medians_ms: list[float] = Field(default_factory=list)
    code_ms: list[float] = Field(default_factory=list)
    passes_per_frame: int | None = None
    bytes_per_frame: int | None = None
    gbps: float | None = None
    roof_ms: float | None = None
    roof_fraction: float | None = None
    roof_suspect: bool = False
    fidelity: Fidelity = Fidelity()
    speedup_vs_baseline: Ratio | None = None
    rtf_cp: float | None = None
    first_call_ms: float | None = None
    load_s: float | None = None
    compile_s: float | None = None
    rss_mb: float | None = None
    oversubscribed: bool = False
    outliers: int = 0
    lossy_weights: int = 0
    checks: list[CheckResult] = Field(default_factory=list)
    reason: str = ""
    engine_note: str = ""

    @model_validator(mode="after")
    def _no_time_without_a_passed_gate(self) -> Self:
        timed = self.cp_ms or self.round_medians_ms or self.code_ms or self.gbps or self.speedup_vs_baseline
        if timed and self.gate != "pass":
            raise ValueError(f"{self.variant} x {self.threads}: times on a cell whose gate says {self.gate}")
        if self.exact and (self.tier != "exact" or self.arithmetic != "f32" or self.lossy_weights):
            raise ValueError(f"{self.variant}: called exact, but tier={self.tier}, arithmetic={self.arithmetic}")
        return self


class ModelFacts(_Frozen):
    """Which weights were measured. ``synthetic`` models make no claim about speech."""

    name: str
    spec: dict[str, Any]
    digest: str
    synthetic: bool


class Talker(_Frozen):
    """The talker measured in the same run, where it was; ``backend`` names the engine."""

    backend: str
    prefill_ms: float | None
    step_ms: Interval


class Reference(_Frozen):
    """Figures from another machine, shown beside this one's and always marked so."""

    name: str
    talker_ms: float
    cp_ms: float
    rtf: float


class RunFacts(_Frozen):
    """How the run was made, enough to make it again."""

    command: str
    seed: int
    rounds: int
    frames_per_round: int
    started_utc: str
    elapsed_s: float
    interrupted: bool = False
    commit: str
    dirty: bool
    tool_version: str
    golden: str
    thread_list: list[int]
    thread_list_reason: str
    not_measured: list[str] = Field(default_factory=list)


class Summary(_Frozen):
    """``summary.json``: one sweep, digested."""

    schema_: str = Field(default=SWEEP_SCHEMA, alias="schema")
    model: ModelFacts
    machine: dict[str, Any]
    run: RunFacts
    baseline: str
    cells: list[CellSummary]
    talker: Talker | None = None
    roof: dict[str, dict[str, float]] = Field(default_factory=lambda: dict[str, dict[str, float]](threads={}))
    reference: Reference

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def read_summary(path: Path) -> Summary:
    """Read a ``summary.json``.

    Raises:
        UnreadableRecordError: the file is missing, is no JSON, or has a schema that this version does not know.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}; is this a run folder?") from error
    except ValueError as error:
        raise UnreadableRecordError(f"{path}: not JSON ({error}); the run did not end cleanly") from error
    schema = raw.get("schema") if isinstance(raw, dict) else None
    if schema != SWEEP_SCHEMA:
        raise UnreadableRecordError(f"{path}: schema {schema!r}; this version reads {SWEEP_SCHEMA!r}")
    try:
        return Summary.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnreadableRecordError(f"{path}: {where or 'summary'}: {first['msg']}") from error


def read_records(path: Path) -> list[CellRecord]:
    """Read ``records.jsonl``, one record a line.

    Raises:
        UnreadableRecordError: naming the line that cannot be read.
    """
    records = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableRecordError(f"{path}: {error.strerror or error}") from error
    for number, line in enumerate(lines, start=1):
        try:
            records.append(CellRecord.model_validate_json(line))
        except ValidationError as error:
            raise UnreadableRecordError(f"{path}, line {number}: {error.errors()[0]['msg']}") from error
    return records
