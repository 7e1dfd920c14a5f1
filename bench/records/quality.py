"""What ``bench quality`` found: how far implementations are from what the model says in float32."""

from __future__ import annotations

from pydantic import Field

from bench.records.measured import Frozen


class Estimate(Frozen):
    """A figure with its 95 % bootstrap interval over frames; with fewer than 3 frames their range."""

    value: float
    lo: float
    hi: float


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
