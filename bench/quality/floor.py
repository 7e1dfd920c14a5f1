"""The floor of a recommendation: what keeps too few codes is not recommended, however well it fits a budget.

Which share is enough is for the person who ships to say (``--least-agreement``). Where nobody says, it is measured:
what the naive Q8_0 implementation keeps on the same frames, at the lower end of its interval. Q8_0 is what engines
offer first and what is nearest to the float model; a recipe below it loses more, by more than the frames vary. A
percentage chosen beforehand would mean another thing on each model, since agreement depends on its margins: a model
full of near-ties keeps few codes however little is rounded. Where Q8_0 itself is lost (a model of spikes, whose weights
no block of 32 bears) it is no measure. Less than half is never enough unasked: more codes are then changed than kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.quality.costs import Costs
from bench.quality.recipe_search import Found
from bench.quality.teacher_forced import measure
from bench.quality.trials import Trials
from bench.quality.truth import Truth
from bench.records.quality import Floor
from bench.records.recipe import Step, Trial
from cplab.model import Model
from cplab.naive import Naive

#: The rounding whose agreement is the floor where nobody names one.
USUAL = "q8_0"
#: Below this share more codes are changed than kept.
_HALF = 0.5


def floor_of(least_percent: float | None, model: Model, truth: Truth) -> Floor | None:
    """The floor that was asked for, or the measured one.

    Args:
        least_percent: of the codes, 0 for no floor; None to measure it.
        model: the original weights.
        truth: what the float32 law says of the frames.

    Returns:
        None for none: 0 was asked for.
    """
    if least_percent is not None:
        return asked_floor(least_percent)
    naive = Naive(model, USUAL)
    kept = measure(naive.scored, truth).agreement
    if kept.lo < _HALF:
        share = f"{100 * kept.value:.1f} %"
        return Floor(least=_HALF, source=f"half, since the naive {USUAL.upper()} keeps {share} itself")
    return Floor(
        least=kept.lo,
        source=f"of the naive {USUAL.upper()}, which keeps {100 * kept.value:.1f} % "
        f"[{100 * kept.lo:.1f}, {100 * kept.hi:.1f}] of these frames' codes, the lower end",
    )


def asked_floor(least_percent: float) -> Floor | None:
    """The floor of ``--least-agreement``; None for 0."""
    return Floor(least=least_percent / 100, source="--least-agreement") if least_percent > 0 else None


@dataclass(frozen=True, slots=True)
class Recommended:
    """What a search's end comes to beside a floor.

    Attributes:
        chosen: the recipe; where none within the budget is good enough, the one that loses least.
        steps: to it; none where the search did not end there.
        kept: whether it is recommended.
        nearest: where it is not, the cheapest of all that were measured that is good enough, or None.
    """

    chosen: Trial
    steps: list[Step]
    kept: bool
    nearest: Trial | None = None


def recommended(ended: Found, trials: Trials, costs: Costs, budget: float, floor: Floor | None) -> Recommended:
    """Judge what a search found, and everything that was measured on the way, beside a floor."""
    if floor is None or good_enough(ended.chosen, floor):
        return Recommended(ended.chosen, ended.steps, kept=True)
    able = [trial for trial in trials.measured() if good_enough(trial, floor)]
    within = [trial for trial in able if costs.of(trial.formats) <= budget]
    if within:
        return Recommended(min(within, key=lambda trial: trial.damage), [], kept=True)
    nearest = min(able, key=lambda trial: costs.of(trial.formats), default=None)
    return Recommended(ended.chosen, ended.steps, kept=False, nearest=nearest)


def good_enough(trial: Trial, floor: Floor) -> bool:
    """Whether a recipe keeps the share of codes that the floor asks for, and every logit is finite."""
    return not trial.lost.non_finite and trial.lost.agreement.value >= floor.least
