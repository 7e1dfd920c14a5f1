"""What ``bench quality`` found: how far implementations are from what the model says in float32."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from bench.records.measured import Frozen, GateOutcome, Tier
from bench.records.summarised import ModelFacts

QUALITY_SCHEMA = "cplab.quality/1"


class Estimate(Frozen):
    """A figure with its 95 % bootstrap interval over frames; with fewer than 3 frames their range."""

    value: float
    lo: float
    hi: float


class Floor(Frozen):
    """What a recommendation must keep: ``least``, a share of codes (pinned), and in ``source`` where that is from."""

    least: float
    source: str


class TeacherForced(Frozen):
    """Logits beside those of the float32 law, every earlier code of the frame pinned.

    A row is one codebook of one frame. Distances are None where the implementation gives no logits, or where any row
    has a logit that is not finite: leaving such rows out would flatter. A frame that ended in an error counts as rows
    that are not finite, and as agreeing nowhere.

    Attributes:
        frames: how many.
        rows: frames x codebooks.
        non_finite: rows with a NaN or an infinity.
        agreement: share of rows whose largest logit is the same code's.
        agreement_by_codebook: the same for CB1, CB2, ...
        agreement_by_margin: the same, each row counting by the float32 margin (its largest logit less its second), so
            that near-ties count little; None where all margins are 0.
        top5: mean share of the five largest logits' codes that both have.
        top5_by_codebook: the same for CB1, CB2, ...
        kl: mean Kullback-Leibler divergence of the softmax from the float32 one's, in nats.
        kl_median: its median over rows.
        kl_p99: its 99th percentile over rows.
        kl_worst: its largest.
        kl_worst_at: frame (from 0) and codebook (1 for CB1) of the largest.
        kl_by_codebook: its mean for CB1, CB2, ...
        delta_p: mean change of the probability of the code that float32 chose.
        delta_p_rms: root mean square of that change.
        rmse: root mean square difference of logits, in logits.
        rmse_by_codebook: the same for CB1, CB2, ...
        cosine: mean cosine of logit rows.
        cosine_worst: its least.
    """

    frames: int
    rows: int
    non_finite: int
    agreement: Estimate
    agreement_by_codebook: list[float]
    agreement_by_margin: Estimate | None
    top5: Estimate | None = None
    top5_by_codebook: list[float] = Field(default_factory=list)
    kl: Estimate | None = None
    kl_median: float | None = None
    kl_p99: float | None = None
    kl_worst: float | None = None
    kl_worst_at: tuple[int, int] | None = None
    kl_by_codebook: list[float] = Field(default_factory=list)
    delta_p: float | None = None
    delta_p_rms: float | None = None
    rmse: Estimate | None = None
    rmse_by_codebook: list[float] = Field(default_factory=list)
    cosine: Estimate | None = None
    cosine_worst: float | None = None

    @property
    def damage(self) -> float:
        """Mean divergence in nats: what agreement is too coarse to tell; infinite where a logit is not finite."""
        return self.kl.value if self.kl is not None else float("inf")


class FreeRunning(Frozen):
    """Frames in which an implementation's own codes are fed back, beside the model's own.

    Attributes:
        frames: how many.
        failed: frames that ended in an error; they agree nowhere.
        agreement: share of codes that are the model's.
        agreement_by_codebook: the same for CB1, CB2, ...
        frames_matched: frames with all codes the model's.
        first_difference: frames whose first other code is CB1's, CB2's, ...
        codes_before: mean count of codes before the first other one.
    """

    frames: int
    failed: int
    agreement: Estimate
    agreement_by_codebook: list[float]
    frames_matched: int
    first_difference: list[int]
    codes_before: Estimate


class NaiveDistance(Frozen):
    """Distance of logits beside that of the naive implementation of the same precision (`cplab.naive`).

    Attributes:
        format: what the naive implementation rounds weights to; it rounds activations to what goes with that.
        rmse: the naive implementation's root mean square distance from float32, over all rows; None where it overflows.
        agreement: its teacher-forced agreement.
        ratio: the implementation's distance over the naive one's, in the frame where that is largest.
        ratio_frame: that frame.
        ratio_median: the median over frames.
        allowed: what `ratio` may be.
        passed: whether it is, in every frame.
        detail: what was found, in one line.
    """

    format: str
    rmse: float | None
    agreement: float | None
    ratio: float | None
    ratio_frame: int | None
    ratio_median: float | None
    allowed: float
    passed: bool
    detail: str


class Collapse(Frozen):
    """What a long rollout looks like by itself: a collapsed one repeats itself and uses few codes.

    Attributes:
        frames: how many were spoken.
        distinct: how many of them have codes of their own.
        repeats: how many are equal to the frame before.
        codes_used: pairs of codebook and code that occur.
        non_finite: rows with a logit that is not finite.
        stopped: why it ended early, or "".
    """

    frames: int
    distinct: int
    repeats: int
    codes_used: int
    non_finite: int
    stopped: str = ""


class Rollout(Frozen):
    """An implementation in a loop with a talker, beside the float32 law's loop.

    Attributes:
        window: frames to a window.
        own: its own loop.
        agreement: share of codes that are those of the float32 loop's frame of the same number, by window. Once a code
            differs the talker hears something else, and what follows is another utterance, not an error.
        first_difference: the first frame with another code, or None.
        along_every: each such frame of the float32 loop was also given to it, codes pinned.
        along_agreement: teacher-forced agreement on those, by window: whether it gets worse with time.
        along_kl: mean divergence on those in nats, by window; empty where there is none.
    """

    window: int
    own: Collapse
    agreement: list[float]
    first_difference: int | None
    along_every: int
    along_agreement: list[float]
    along_kl: list[float]


class FloatRollout(Frozen):
    """The float32 law's loop, which the others are held against.

    Attributes:
        talker: which talker is in the loop.
        own: what it looks like by itself.
        unrelated: share of codes that two frames far apart have in common: what agreement means nothing; None of fewer
            than two frames.
    """

    talker: str
    own: Collapse
    unrelated: float | None


class AudioDistance(Frozen):
    """The sound of an implementation's choices beside that of float32's, recorded codes pinned.

    Attributes:
        seconds: of sound.
        cosine: of the samples; None where one is silence.
        rmse: of the samples, full scale being 1.
        mel_db: mean difference of 80 mel bands in decibels.
    """

    seconds: float
    cosine: float | None
    rmse: float
    mel_db: float


class QualityCell(Frozen):
    """One implementation.

    ``status`` is ``pass`` where the gate passed, all logits are finite and the distance is within twice the naive
    implementation's, ``fail`` where one is not so, ``crash`` where the worker died, ``skip`` where something is not
    installed.
    """

    variant: str
    format: str
    arithmetic: str
    tier: Tier
    threads: int
    status: Literal["pass", "fail", "crash", "skip"]
    reason: str = ""
    gate: GateOutcome | None = None
    exact: bool = False
    lossy_weights: int = 0
    bytes_per_frame: int | None = None
    engine_note: str = ""
    teacher_forced: TeacherForced | None = None
    recorded: TeacherForced | None = None
    audio: AudioDistance | None = None
    free_running: FreeRunning | None = None
    naive: NaiveDistance | None = None
    rollout: Rollout | None = None
    seconds: float = 0.0

    @model_validator(mode="after")
    def _exact_is_equal(self) -> Self:
        if self.exact and self.teacher_forced is not None and self.teacher_forced.agreement.value < 1:
            raise ValueError(f"{self.variant}: called exact, and other codes than the model's")
        return self


class QualityFacts(Frozen):
    """How it was measured, enough to do it again.

    ``golden`` names the file; ``recorded`` the file of codes that were pinned besides, with its frames, or "".
    """

    command: str
    started_utc: str
    elapsed_s: float
    commit: str
    dirty: bool
    tool_version: str
    threads: int
    golden: str
    golden_reference: str
    golden_frames: int
    golden_distinct: int
    recorded: str = ""
    recorded_frames: int = 0
    law_by: str = ""


class Quality(Frozen):
    """``quality.json``: what ``bench quality`` found."""

    schema_: str = Field(default=QUALITY_SCHEMA, alias="schema")
    warning: str
    model: ModelFacts
    facts: QualityFacts
    float_rollout: FloatRollout | None = None
    floor: Floor | None = None
    cells: list[QualityCell]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def below_floor(self) -> str:
        """Which variants keep fewer codes than a recommendation must, in a sentence; "" for none."""
        if self.floor is None:
            return ""
        pairs = [(cell.variant, cell.teacher_forced) for cell in self.cells if cell.teacher_forced is not None]
        below = [name for name, pinned in pairs if pinned.agreement.value < self.floor.least]
        if not below:
            return ""
        share = f"{100 * self.floor.least:.1f} % of the codes ({self.floor.source})"
        return f"Below {share}, so not to be recommended: {', '.join(below)}."
