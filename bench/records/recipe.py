"""What ``bench quality --sensitivity`` and ``bench recipe`` found: recipes of formats, each with what it loses."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from bench.records.measured import Frozen
from bench.records.quality import Floor, NaiveDistance, TeacherForced
from bench.records.summarised import ModelFacts

SENSITIVITY_SCHEMA, RECIPE_SCHEMA = "cplab.sensitivity/1", "cplab.recipe/1"


class Trial(Frozen):
    """One recipe on one model, beside the float32 law.

    Attributes:
        formats: ``all``, a class or ``CLASS.N`` -> format; what is not named is as the model has it.
        bytes_per_frame: that a KV-cached frame streams.
        lost: its logits beside the float32 law's, codes pinned.
    """

    formats: dict[str, str]
    bytes_per_frame: int
    lost: TeacherForced

    @property
    def damage(self) -> float:
        """As of what is lost."""
        return self.lost.damage

    @property
    def named(self) -> str:
        """The recipe in a line."""
        return ", ".join(f"{unit} {kind}" for unit, kind in self.formats.items()) or "the model as it is"


class Sensitivity(Frozen):
    """Each class of matrices quantised alone.

    Attributes:
        schema_: of this record.
        warning: what the figures are not about, or "".
        model: whose matrices.
        frames: of the golden.
        base: the model as it is.
        trials: one class (or matrix) in one format each, then all of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(default=SENSITIVITY_SCHEMA, alias="schema")
    warning: str
    model: ModelFacts
    frames: int
    base: Trial
    trials: list[Trial]


class Step(Frozen):
    """One step of a search: what was given which format, and where that led.

    Attributes:
        unit: a class or a matrix.
        format: what it was given; "" for the model's own.
        cost: of the whole recipe after it.
        damage: of the whole recipe after it; None where a logit is not finite.
        gave_back: whether it made the recipe wider again, within the budget.
    """

    unit: str
    format: str
    cost: float
    damage: float | None
    gave_back: bool = False


class RecipeFound(Frozen):
    """What a search for a recipe within a budget found.

    Attributes:
        schema_: of this record.
        warning: what the figures are not about, or "".
        model: whose matrices.
        frames: of the golden.
        threads: of the team whose times the costs are of.
        budget: that the recipe's cost is within.
        cost_in: what cost is counted in; milliseconds are estimated by matrix, from whole frames in each format.
        cost: the recipe's.
        measured_ms: of a frame with the recipe, median of a few; None where bytes were asked for. `bench sweep` judges.
        chosen: the recipe; where it is not `recommended`, the one within the budget that loses least.
        naive: its logits beside those of the naive implementation of the same mix of formats; None where it changes
            nothing, or has logits that are not finite.
        floor: the share of codes that a recipe must keep to be recommended; None for no floor.
        recommended: whether it does.
        nearest: where it does not, the cheapest recipe that was measured and does; None where there is none.
        nearest_cost: of that one.
        uniform: the model in one format throughout, for comparison.
        steps: how it was found; none where it is not where the steps led, such as one format throughout.
        trials: how many recipes were measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(default=RECIPE_SCHEMA, alias="schema")
    warning: str
    model: ModelFacts
    frames: int
    threads: int
    budget: float
    cost_in: Literal["ms", "bytes"]
    cost: float
    measured_ms: float | None = None
    chosen: Trial
    naive: NaiveDistance | None = None
    floor: Floor | None = None
    recommended: bool = True
    nearest: Trial | None = None
    nearest_cost: float | None = None
    uniform: list[Trial]
    steps: list[Step]
    trials: int
