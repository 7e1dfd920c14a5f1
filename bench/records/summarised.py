"""What a run came to: the types behind ``summary.json``."""

from __future__ import annotations

from typing import Any, Self

from pydantic import ConfigDict, Field, model_validator

from bench.records.measured import CheckResult, Frozen, Status, Tier

SWEEP_SCHEMA = "cplab.sweep/1"


class Interval(Frozen):
    """Milliseconds: the median over rounds of per-round medians, its 95 % bootstrap interval, the least sample."""

    p50: float
    lo: float
    hi: float
    min: float


class Ratio(Frozen):
    """A ratio of two cells, paired by round, with its 95 % bootstrap interval."""

    ratio: float
    lo: float
    hi: float


class Fidelity(Frozen):
    """Share of codes equal to the f32 golden's, 0..1; None where it was not measured."""

    teacher_forced: float | None = None
    free_running: float | None = None


class CellSummary(Frozen):
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


class ModelFacts(Frozen):
    """Which weights were measured. ``synthetic`` models make no claim about speech."""

    name: str
    spec: dict[str, Any]
    digest: str
    synthetic: bool


class Talker(Frozen):
    """The talker measured in the same run, where it was; ``backend`` names the engine."""

    backend: str
    prefill_ms: float | None
    step_ms: Interval


class Reference(Frozen):
    """Figures from another machine, shown beside this one's and always marked so."""

    name: str = "Kazeia tablet, CPU 4 threads"
    talker_ms: float = 29.3
    cp_ms: float = 267.0
    rtf: float = 3.61


class RunFacts(Frozen):
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


class Summary(Frozen):
    """``summary.json``: one sweep, digested."""

    schema_: str = Field(default=SWEEP_SCHEMA, alias="schema")
    model: ModelFacts
    machine: dict[str, Any]
    run: RunFacts
    baseline: str
    cells: list[CellSummary]
    talker: Talker | None = None
    roof: dict[str, dict[str, float]] = Field(default_factory=lambda: dict[str, dict[str, float]](threads={}))
    reference: Reference = Reference()

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
