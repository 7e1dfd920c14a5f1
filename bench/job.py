"""What a worker is told: one cell, one phase, as JSON on its standard input."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Job(BaseModel):
    """One worker process's task.

    Attributes:
        phase: ``prepare`` makes the model, its golden and the compiled kernels; ``gate`` judges the cell; ``timed``
            measures it; ``profile`` judges it and tells where its time goes; ``soak`` measures it for a long time.
            ``talker_prepare`` makes the talker's file, ``talker_trial`` runs it a few steps, ``talker`` measures it.
        model: a path or a name.
        variant: name of the implementation ("" for ``prepare``).
        talker: the talker's file; of ``talker_prepare`` also a seeded one's name.
        threads: team size.
        variant_files: Python files to import first, for variants that are not installed.
        golden: a golden file, or "" for the one of the model.
        cpus: logical CPUs to pin to before numba is imported; None leaves affinity alone.
        round: round number, from 0.
        order: position within the round.
        frames: timed calls; of a profile, as many traced ones again.
        first_frame: index of the golden frame that the first call uses; later calls take the following ones.
        warmup: calls before timing, after the first call.
        gate_frames: frames that the gate looks at; None for all.
        quick_frames: calls that a gate worker times afterwards, to choose thread counts by (never reported).
        digest: the model's digest as the prepare worker found it; "" to compute it.
        lossy: the gate found that the variant's format changes weights of this model.
        seconds: how long a soak goes on.
        batch: frames of each timed call.
        batches: frames at once that the gate judges beside those that it always does.
        roof_reads: how many readings of the cell's own buffers are timed, for the roof.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: Literal["prepare", "gate", "timed", "profile", "soak", "talker_prepare", "talker_trial", "talker"]
    model: str
    variant: str = ""
    talker: str = ""
    threads: int = Field(default=1, ge=1)
    variant_files: list[str] = Field(default_factory=list)
    golden: str = ""
    cpus: list[int] | None = None
    round: int = 0
    order: int = 0
    frames: int = 0
    first_frame: int = 0
    warmup: int = 1
    gate_frames: int | None = None
    quick_frames: int = 0
    digest: str = ""
    lossy: bool = False
    batch: int = Field(default=1, ge=1)
    batches: list[int] = Field(default_factory=list)
    roof_reads: int = 0
    seconds: float = 0.0

    @property
    def record_phase(self) -> Literal["gate", "timed", "profile", "soak", "talker_trial", "talker"]:
        """Under which phase the record of this task stands; what was only made counts to what judges it."""
        if self.phase == "prepare":
            return "gate"
        return "talker_trial" if self.phase == "talker_prepare" else self.phase
