"""What a worker of ``bench quality`` is told, and what it leaves."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from bench.records.measured import Frozen
from bench.records.quality import FloatRollout, Floor, QualityCell
from bench.records.summarised import ModelFacts


class QualityJob(BaseModel):
    """One worker process's task.

    Attributes:
        phase: ``law`` writes what the float32 law says to ``shared``; ``cell`` holds one variant against it.
        shared: the file between them.
        model: a path or a name.
        golden: a golden file, or "" for the one of the model.
        threads: team size.
        frames: of the golden and of recorded codes, at most; None for all.
        gate_frames: frames that the gate looks at.
        rollout: frames of the rollout; 0 for none.
        talker: in the rollout: a GGUF file or ``synthetic-talker:0.6b``; "" for the stand-in.
        recorded: a .npy of codes that are pinned besides, or "".
        hidden: a .npy of the hidden states that they came with, or "" for seeded ones.
        decoder: folder of a speech tokenizer that makes recorded codes heard, or "".
        variant: of ``cell``.
        variant_files: Python files to import first.
        least_percent: of the codes that a recommendation must keep; None for what the naive Q8_0 keeps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: Literal["law", "cell"]
    shared: str
    model: str
    golden: str = ""
    threads: int = Field(ge=1)
    frames: int | None = None
    gate_frames: int = 2
    rollout: int = 0
    talker: str = ""
    recorded: str = ""
    hidden: str = ""
    decoder: str = ""
    variant: str = ""
    variant_files: list[str] = Field(default_factory=list)
    least_percent: float | None = None


class LawFound(Frozen):
    """What the ``law`` worker found out besides."""

    warning: str
    model: ModelFacts
    golden: str
    golden_reference: str
    golden_frames: int
    golden_distinct: int
    recorded_frames: int
    law_by: str
    float_rollout: FloatRollout | None
    floor: Floor | None = None


class QualityResult(Frozen):
    """A worker's result: one of the two, or in one line why there is neither."""

    law: LawFound | None = None
    cell: QualityCell | None = None
    error: str = ""
