"""What ``bench formats`` found: bytes a frame beside what is lost, for each block format."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from bench.records.measured import Frozen
from bench.records.quality import TeacherForced
from bench.records.summarised import ModelFacts

FORMAT_TABLE_SCHEMA = "cplab.formats/1"


class FormatRow(Frozen):
    """Every matrix in one format.

    Attributes:
        format: its name.
        bits_per_weight: its share of the scales included.
        bytes_per_frame: of weights that a KV-cached frame would stream.
        lost: logits beside the float32 law's, codes pinned, as the naive implementation computes them.
        beaten_by: formats that are no larger and have less divergence; none of a format on the front.
    """

    format: str
    bits_per_weight: float
    bytes_per_frame: int
    lost: TeacherForced
    beaten_by: list[str] = Field(default_factory=list)

    @property
    def damage(self) -> float:
        """As of what is lost."""
        return self.lost.damage


class FormatTable(Frozen):
    """Block formats on one model.

    Attributes:
        schema_: of this record.
        warning: what the figures are not about, or "".
        model: whose matrices.
        frames: whose codes are pinned.
        rows: the model's own weights, whose activations alone are rounded, then formats, widest first.
        left_out: formats that were not tried, with the reason.
        kernels: formats of files that matrices are run in as they lie, with the variants that do; none in older
            records.
        only_read: formats of files that are decoded to float32 when read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(default=FORMAT_TABLE_SCHEMA, alias="schema")
    warning: str
    model: ModelFacts
    frames: int
    rows: list[FormatRow]
    left_out: dict[str, str]
    kernels: dict[str, list[str]] = Field(default_factory=dict)
    only_read: list[str] = Field(default_factory=list)
