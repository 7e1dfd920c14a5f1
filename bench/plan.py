"""``plan.json``: what a run set out to do, written before it measures: a killed run can be read and gone on with.

With the plan and the records a run's summary can be made again, whatever became of the process that measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bench.cells import LEAST_ROUNDS
from bench.errors import UnfinishedRunError
from bench.records import Tier
from cplab.external.naming import PREFIX

PLAN_FILE = "plan.json"


class PlannedVariant(BaseModel):
    """What stands under a name in the run; see `bench.options.Contender`.

    ``extra`` is the optional extra that the variant needs; "" of the lab's own, and in plans of older versions.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    format: str
    arithmetic: str
    tier: Tier
    revision: str = ""
    source_digest: str = ""
    extra: str = ""

    @property
    def is_engine(self) -> bool:
        """Whether another's engine does the work: one behind an extra, or one that the user brought."""
        return bool(self.extra) or self.name.startswith(PREFIX)


class PlannedPair(BaseModel):
    """Two cells to compare: name and threads of each."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    a: tuple[str, int]
    b: tuple[str, int]
    least_change: float


class Plan(BaseModel):
    """A run's intent. ``cells`` is None until all are gated; ``prepared`` is what the prepare worker found.

    What the options mean stands in `bench.options.Options`; unknown fields of newer versions are passed over.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    schema_: Literal["cplab.plan/1"] = Field(default="cplab.plan/1", alias="schema")
    command: str
    started_utc: str
    commit: str
    dirty: bool
    tool_version: str
    model: str
    golden: str = ""
    variant_files: list[str] = Field(default_factory=list)
    variants: list[PlannedVariant]
    baseline: str
    threads: list[int]
    threads_given: bool
    threads_reason: str
    everything: bool = False
    rounds: int | None = None
    frames: int | None = None
    budget_s: float
    least_rounds: int = LEAST_ROUNDS
    quick: bool = False
    seed: int = 0
    order: Literal["random", "abba"] = "random"
    aa: bool = False
    soak_s: float | None = None
    talker: str | None = None
    batches: list[int] = Field(default_factory=list)
    no_talker: bool = False
    pair: PlannedPair | None = None
    prepared: dict[str, Any]
    cells: list[tuple[str, int]] | None = None
    left_out: list[str] = Field(default_factory=list)


def read_plan(folder: Path) -> Plan | None:
    """The plan of a run folder; None where it has none, as those of older versions.

    Raises:
        UnfinishedRunError: there is one that cannot be read.
    """
    path = folder / PLAN_FILE
    try:
        return Plan.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeError) as error:
        raise UnfinishedRunError(f"{path}: cannot be read: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "plan"
        raise UnfinishedRunError(f"{path}: {where}: {first['msg']}; was it written by a newer version?") from error
