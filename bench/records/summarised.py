"""What a run came to: the types behind ``summary.json``."""

from __future__ import annotations

from typing import Any, Literal, Self

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


Verdict = Literal["faster", "slower", "same", "undecided"]


class Comparison(Frozen):
    """What may be said of cell ``b`` beside cell ``a`` (`bench.comparison` has the rules).

    Attributes:
        a: what it is compared with, such as ``kv_bf16@HEAD~3 x 2``.
        b: what is judged.
        verdict: of ``b``.
        ratio: time of ``b`` over time of ``a``, above 1 where ``b`` takes longer, with its 95 % bootstrap interval.
        p: of the permutation test; None with fewer than two rounds.
        rounds: pairs of rounds, or the fewer rounds of two where they were not measured in one run.
        limit: the change, as a share, that must be exceeded.
        more_rounds: about how many more would decide, where undecided and where that is a number worth telling.
        note: how the two were compared, where not round by round within one run.
        too_noisy: it is undecided since one cell differs from itself by so much (A/A) that nothing can be told.
    """

    a: str
    b: str
    verdict: Verdict
    ratio: Ratio
    p: float | None
    rounds: int
    limit: float
    more_rounds: int | None = None
    note: str = ""
    too_noisy: bool = False


class Repeatability(Frozen):
    """A cell measured twice in one run as if it were two: what the run makes of no difference at all (A/A).

    ``noise`` is the share by which the two may differ for no reason: the end of the interval that is farther from 1.
    """

    variant: str
    threads: int
    rounds: int
    ratio: Ratio
    noise: float


class SoakPoint(Frozen):
    """A stretch of a soak: when it began, and the median of its frames."""

    at_s: float
    ms: float
    frames: int


class Soak(Frozen):
    """Frames of one process, one after another for a long time: heat and throttling show as a slope.

    ``start_ms`` and ``end_ms`` are the medians of the first and the last tenth of the time.
    """

    variant: str
    threads: int
    seconds: float
    frames: int
    start_ms: float
    end_ms: float
    points: list[SoakPoint]


class Fidelity(Frozen):
    """Share of codes equal to the f32 golden's, 0..1; None where it was not measured."""

    teacher_forced: float | None = None
    free_running: float | None = None


class CellSummary(Frozen):
    """A cell over all its rounds. Without a passed gate every time is None.

    ``disturbed`` has a line for each measurement that was made under heavy steal, throttling or crowding, repeats
    included. ``joules_per_frame`` is the median over measurements of what all CPU packages took, or None with
    ``energy_reason``. ``above_roofline``: faster than the machine's roofline says is possible (`RooflinePoint`).

    ``exact`` is true only for tier ``exact`` with arithmetic ``f32`` and a lossless pack. ``roof_ms`` is the time
    that the best read-only kernel took for the same bytes, ``roof_fraction = roof_ms / cp_ms.p50``. ``engine_note`` is
    what a variant over a foreign engine says of it: the settings it took, and why. ``mad_ms`` is over rounds,
    ``p99_ms`` over frames, ``outliers`` are counted, not dropped. ``revision`` is the commit of another tree whose code
    ran, "" for this one's; ``source_digest`` is of the sources that the variant is made of (`bench.sources`).
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
    macs_per_frame: int | None = None
    joules_per_frame: float | None = None
    energy_reason: str = ""
    disturbed: list[str] = Field(default_factory=list)
    above_roofline: bool = False
    mad_ms: float | None = None
    p99_ms: float | None = None
    revision: str = ""
    source_digest: str = ""

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
    """The talker measured in the same run, where it was; ``backend`` names the engine.

    ``prefill_ms`` is the median over rounds of the prefill of ``positions``. ``threads_reason`` says why it has so many
    threads, ``note`` which settings of its engine were taken and why. ``disturbed`` is as in `CellSummary`.
    """

    backend: str
    prefill_ms: float | None
    step_ms: Interval
    name: str = ""
    threads: int | None = None
    threads_reason: str = ""
    positions: int | None = None
    rounds: int = 0
    steps: int = 0
    note: str = ""
    disturbed: list[str] = Field(default_factory=list)


class WithoutTalker(Frozen):
    """Why a run that might have measured the talker has no time of it."""

    status: Literal["fail", "crash", "skip"]
    reason: str


class Reference(Frozen):
    """Figures from another machine, shown beside this one's and always marked so."""

    name: str
    talker_ms: float
    cp_ms: float
    rtf: float


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


#: The same bits in 32 and in 16 bits a weight: what packing and speculation are held against (`Summary.comparisons`).
PLAIN_VARIANTS = ("kv_f32", "kv_bf16")


class Summary(Frozen):
    """``summary.json``: one sweep, digested.

    ``comparisons`` has the pair that ``compare`` asked for, or of a sweep what `bench.plain_comparisons` finds.
    ``engines`` has a sweep's cells of other engines (``a``) beside the lab's own (``b``): `bench.engine_comparisons`.
    """

    schema_: str = Field(default=SWEEP_SCHEMA, alias="schema")
    model: ModelFacts
    machine: dict[str, Any]
    run: RunFacts
    baseline: str
    cells: list[CellSummary]
    talker: Talker | None = None
    without_talker: WithoutTalker | None = None
    roof: dict[str, dict[str, float]] = Field(default_factory=lambda: dict[str, dict[str, float]](threads={}))
    reference: Reference
    repeatability: Repeatability | None = None
    soak: Soak | None = None
    comparisons: list[Comparison] = Field(default_factory=list)
    engines: list[Comparison] = Field(default_factory=list)

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
