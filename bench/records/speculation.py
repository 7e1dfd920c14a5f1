"""What became of drafts: counts over a cell's records, and the curve over acceptance (``speculation.json``)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pydantic import ConfigDict, Field

from bench.records.files import read_if_there
from bench.records.measured import CellRecord, Frozen
from bench.records.summarised import Interval, Ratio

SPECULATION_SCHEMA = "cplab.speculation/1"
SPECULATION_FILE = "speculation.json"


class DraftCounts(Frozen):
    """What became of a speculative cell's drafts, over all its timed records.

    Frames in which draft lengths are learnt count too: every timed worker is a process that begins to learn anew.

    Attributes:
        drafter: ``heads``, or the format of the model that drafts.
        passes: of all frames together.
        asked: drafts that were compared, by codebook from CB1 on; those that no pass took in too.
        held: those of them that were right.
    """

    drafter: str = "heads"
    frames: int
    passes: float
    asked: list[int]
    held: list[int]

    @property
    def first(self) -> int:
        """The first codebook, from 0 on, that is ever drafted: heads cannot tell the first code of a frame."""
        return 0 if self.asked[0] else 1

    @property
    def codes_per_pass(self) -> float:
        """Over all passes, those among them that had no drafts."""
        return self.frames * len(self.asked) / self.passes

    @property
    def passes_per_frame(self) -> float:
        """The mean over frames."""
        return self.passes / self.frames

    @property
    def acceptance(self) -> list[float | None]:
        """Share of drafts that held, by codebook from CB1 on; None where none was compared."""
        return [held / asked if asked else None for held, asked in zip(self.held, self.asked, strict=True)]


def draft_counts(records: Iterable[CellRecord]) -> DraftCounts | None:
    """The counts of one cell's timed records; None where it does not speculate, or has run no frame."""
    told = [facts for record in records if (facts := record.facts.get("speculation")) and facts["frames"]]
    if not told:
        return None
    asked, held = ([sum(column) for column in zip(*(facts[name] for facts in told), strict=True)] for name in
                   ("asked", "held"))  # fmt: skip
    return DraftCounts(
        drafter=told[0].get("drafter", "heads"),  # records of before there was another have none
        frames=sum(facts["frames"] for facts in told),
        passes=sum(facts["passes_per_frame"] * facts["frames"] for facts in told),
        asked=asked,
        held=held,
    )


class CurvePoint(Frozen):
    """One share of drafts that hold.

    Attributes:
        share: that was set; None for the drafter's own drafts.
        held: share of the compared drafts that held, in the timed frames; None where none was compared.
        codes_per_pass: over all passes of the timed frames, each frame's first among them.
        passes_per_frame: the same, as passes.
        ms: of a frame.
        speedup: over the plain decoder of the same format, paired by round.
    """

    share: float | None
    held: float | None
    codes_per_pass: float
    passes_per_frame: float
    ms: Interval
    speedup: Ratio


class SpeculationCurve(Frozen):
    """Speed of a speculative decoder over the share of its drafts that hold, as ``bench speculation`` measured it.

    Attributes:
        variant: ``spec_bf16``, or ``spec_bf16_q4_0`` where a model in q4_0 drafts.
        plain: what it was timed beside in every round, ``kv_bf16``.
        model: its name; ``digest`` is of its weights.
        cpu: the CPU's model, as in ``machine.json``.
        plain_ms: of a plain frame.
        points: shares that were set, and the drafter's own drafts.
    """

    variant: str
    plain: str
    threads: int
    model: str
    digest: str
    synthetic: bool
    cpu: str
    started_utc: str
    commit: str
    dirty: bool
    tool_version: str
    command: str
    rounds: int
    plain_ms: Interval
    points: list[CurvePoint]


class Speculation(Frozen):
    """``speculation.json``: a curve for each variant and thread count, the newest of each."""

    schema_: str = Field(default=SPECULATION_SCHEMA, alias="schema")
    curves: list[SpeculationCurve]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    def with_curve(self, curve: SpeculationCurve) -> Speculation:
        """With one more curve, in the place of an older one of the same variant and thread count."""
        others = [one for one in self.curves if (one.variant, one.threads) != (curve.variant, curve.threads)]
        return Speculation(curves=[*others, curve])


def read_speculation(path: Path) -> Speculation | None:
    """Read a ``speculation.json``; None where there is none.

    Raises:
        UnreadableRecordError: it cannot be read, or has a schema that this version does not know.
    """
    return read_if_there(path, Speculation, SPECULATION_SCHEMA)
