"""Which matrices bear to be quantised: one class at a time, damage beside bytes saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.quality.trials import Trials
from bench.records.recipe import Sensitivity, Trial
from bench.records.summarised import ModelFacts
from cplab.recipe import ALL

GRAINS = ("class", "matrix")


def units_at(trials: Trials, grain: str) -> list[str]:
    """What is given a format as one: every class, or every ``CLASS.N``."""
    if grain == "matrix":
        return list(trials.units)
    return list(dict.fromkeys(unit.partition(".")[0] for unit in trials.units))


def sensitivity(
    trials: Trials,
    formats: Sequence[str],
    grain: str,
    about: ModelFacts,
    warning: str,
    say: Callable[[str], None] = lambda what: None,
) -> Sensitivity:
    """Quantise each class (or matrix) alone, then all of them.

    Args:
        trials: of the model.
        formats: that each is tried in.
        grain: one of `GRAINS`.
        about: the model.
        warning: goes into the record.
        say: told what is being tried.
    """
    base = trials.of({})
    found: list[Trial] = []
    for unit in (*units_at(trials, grain), ALL):
        for kind in formats:
            say(f"{unit} in {kind}")
            found.append(trials.of({unit: kind}))
    return Sensitivity(warning=warning, model=about, frames=len(trials.truth), base=base, trials=found)
