"""A recipe within a budget, found greedily: what loses least for what it saves goes first.

Damage is the mean divergence from the float32 law; cost is bytes or milliseconds. Every move (one unit into a narrower
format) is measured once on the model as it is. Then the best of them is measured again beside what was taken before,
and taken if it is still the best; else it waits its turn. Damages add up nearly, not exactly, which is what measuring
again is for. At the end what was taken is given back, the most harmful first, where the budget has room for it. A model
in one format throughout is taken instead where it loses less within the budget. None of this says that there is no
better recipe.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from bench.quality.costs import Costs
from bench.quality.trials import Trials
from bench.records.recipe import Step, Trial
from cplab.errors import BadInputError
from cplab.recipe import ALL


@dataclass(frozen=True, slots=True)
class Found:
    """A search's end: the recipe, the steps to it (none where one format throughout is better), and those formats."""

    chosen: Trial
    steps: list[Step]
    uniform: list[Trial]


class Search:
    """A greedy search.

    Args:
        trials: of the model.
        costs: of recipes.
        units: what is given a format as one.
        formats: that there are, besides the model's own.
        say: told what is being tried.
    """

    def __init__(
        self,
        trials: Trials,
        costs: Costs,
        units: Sequence[str],
        formats: Sequence[str],
        say: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.trials, self.costs, self.units, self.formats, self.say = trials, costs, units, formats, say
        self.taken: dict[str, str] = {}
        self.steps: list[Step] = []

    def within(self, budget: float) -> Found:
        """The recipe for a budget.

        Raises:
            BadInputError: nothing that the formats allow is within it.
        """
        narrowest = min((self.costs.of(self._narrowest()), *(self.costs.of({ALL: kind}) for kind in self.formats)))
        if narrowest > budget:
            raise BadInputError(
                f"no recipe of {', '.join(self.formats)} is within {budget:g} {self.costs.unit}: the narrowest takes "
                f"{narrowest:.4g}"
            )
        self._narrow(budget)
        self._give_back(budget)
        uniform = [self.trials.of({ALL: kind}) for kind in self.formats]
        best = self.trials.of(self.taken)
        for one in uniform:
            if self.costs.of(one.formats) <= budget and one.damage < best.damage:
                best, self.steps = one, []
        return Found(best, self.steps, uniform)

    def _narrowest(self) -> dict[str, str]:
        """Every unit as narrow as it gets."""
        found: dict[str, str] = {}
        for unit in self.units:
            kinds = ["", *self.formats]
            kind = min(kinds, key=lambda one, unit=unit: self.costs.of(_with({}, unit, one)))  # type: ignore[misc]
            found = _with(found, unit, kind)
        return found

    def _narrow(self, budget: float) -> None:
        """Take moves until the recipe is within the budget."""
        ticket = count()  # of equal worth, the first one stands first
        waiting: list[tuple[float, int, int, str, str]] = []

        def wait(unit: str, kind: str) -> None:
            worth = self._worth(unit, kind)
            if worth is not None:
                heapq.heappush(waiting, (worth, next(ticket), len(self.steps), unit, kind))

        for unit in self.units:
            for kind in self.formats:
                wait(unit, kind)
        while self.costs.of(self.taken) > budget and waiting:
            _, _, known_at, unit, kind = heapq.heappop(waiting)
            if known_at != len(self.steps):
                wait(unit, kind)
                continue
            self._take(unit, kind)

    def _worth(self, unit: str, kind: str) -> float | None:
        """Damage for each unit of cost that a move saves, beside what was taken; None where it saves nothing."""
        after = _with(self.taken, unit, kind)
        saved = self.costs.of(self.taken) - self.costs.of(after)
        if saved <= 0:
            return None
        self.say(f"{unit} in {kind}")
        damage = self.trials.of(after).damage
        if not math.isfinite(damage):
            return math.inf  # whatever was taken before: such a move comes last
        return (damage - self.trials.of(self.taken).damage) / saved

    def _take(self, unit: str, kind: str, gave_back: bool = False) -> None:
        self.taken = _with(self.taken, unit, kind)
        cost, damage = self.costs.of(self.taken), self.trials.of(self.taken).damage
        told = damage if math.isfinite(damage) else None
        self.steps.append(Step(unit=unit, format=kind, cost=cost, damage=told, gave_back=gave_back))

    def _give_back(self, budget: float) -> None:
        """Widen again what gains most by it, as long as there is room."""
        while True:
            best: tuple[float, str, str] | None = None
            for unit in self.taken:
                for kind in ("", *self.formats):
                    after = _with(self.taken, unit, kind)
                    if not self.costs.of(self.taken) < self.costs.of(after) <= budget:
                        continue
                    self.say(f"{unit} back in {kind or 'its own format'}")
                    gain = self.trials.of(self.taken).damage - self.trials.of(after).damage
                    if gain > 0 and (best is None or gain > best[0]):
                        best = gain, unit, kind
            if best is None:
                return
            self._take(best[1], best[2], gave_back=True)


def _with(formats: Mapping[str, str], unit: str, kind: str) -> dict[str, str]:
    """A recipe with one unit changed; "" leaves it as the model has it."""
    after = {**formats, unit: kind}
    return {key: name for key, name in after.items() if name}
