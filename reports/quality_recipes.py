"""Recipes on a quality page: what each class of matrices loses for what it saves, and how a recipe was found."""

from __future__ import annotations

from bench.records.quality import Estimate, QualityCell
from bench.records.recipe import RecipeFound, Sensitivity, Trial
from reports.quality_points import share
from reports.wording import NOTHING, percent, significant

SENSITIVITY = ("quantised alone", "format", "saves MB", "share", "KL mean", "agreement", "KL a GB saved")
PATH = ("step", "matrices", "format", "cost", "KL mean")
BESIDE = ("recipe", "MB a frame", "KL mean", "agreement", "rmse")
AUDIO = ("variant", "seconds", "cosine", "rmse", "mel dB")


def sensitivity_rows(found: Sensitivity) -> list[list[str]]:
    """Rows under `SENSITIVITY`."""
    base, rows = found.base, []
    for trial in found.trials:
        ((unit, kind),) = trial.formats.items()
        saved = base.bytes_per_frame - trial.bytes_per_frame
        rate = significant((trial.damage - base.damage) / saved * 1e9) if saved > 0 and trial.lost.kl else NOTHING
        rows.append(
            [unit, kind, f"{saved / 1e6:.1f}", percent(saved / base.bytes_per_frame), _kl(trial),
             share(trial.lost.agreement), rate]
        )  # fmt: skip
    return rows


def path_rows(found: RecipeFound) -> list[list[str]]:
    """Rows under `PATH`: the search's steps, those that gave something back named so."""
    return [
        [
            f"{number} gave back" if step.gave_back else str(number),
            step.unit,
            step.format or "its own",
            cost(step.cost, found.cost_in),
            significant(step.damage),
        ]
        for number, step in enumerate(found.steps, 1)
    ]


def beside_rows(found: RecipeFound) -> list[list[str]]:
    """Rows under `BESIDE`: the recipe, the nearest that is good enough, one format throughout."""
    trials = [("recommended" if found.recommended else "nearest within, not recommended", found.chosen)]
    if found.nearest is not None:
        trials.append(("nearest that keeps enough", found.nearest))
    trials += [(f"all {', '.join(trial.formats.values())}", trial) for trial in found.uniform]
    return [
        [
            name,
            f"{trial.bytes_per_frame / 1e6:.1f}",
            _kl(trial),
            share(trial.lost.agreement),
            significant(trial.lost.rmse.value if trial.lost.rmse else None),
        ]
        for name, trial in trials
    ]


def recipe_words(found: RecipeFound) -> str:
    """What the search came to, in a few sentences."""
    budget = cost(found.budget, found.cost_in)
    searched = f"{found.trials} recipes were measured on {found.frames} frames; the search is greedy."
    floor = found.floor
    if found.recommended:
        named = found.chosen.named
        took = "" if found.measured_ms is None else f", measured {significant(found.measured_ms)} ms"
        told = f"Within {budget}: {named}, {cost(found.cost, found.cost_in)}{took}."
        if floor is not None:
            told += f" The least that is recommended is {percent(floor.least)} of the codes ({floor.source})."
        return f"{told} {searched}"
    least = "as much as was asked for" if floor is None else f"{percent(floor.least)} of the codes ({floor.source})"
    told = f"No recommendation: nothing that was measured within {budget} keeps {least}."
    if found.nearest is not None and found.nearest_cost is not None:
        told += f" The nearest that does costs {cost(found.nearest_cost, found.cost_in)}: {found.nearest.named}."
    return f"{told} {searched}"


def audio_rows(cells: list[QualityCell]) -> list[list[str]]:
    """Rows under `AUDIO`."""
    return [
        [
            cell.variant,
            significant(cell.audio.seconds),
            NOTHING if cell.audio.cosine is None else f"{cell.audio.cosine:.6f}",
            significant(cell.audio.rmse),
            significant(cell.audio.mel_db),
        ]
        for cell in cells
        if cell.audio is not None
    ]


def cost(value: float, unit: str) -> str:
    """Milliseconds, or megabytes of so many bytes."""
    return f"{significant(value)} ms" if unit == "ms" else f"{value / 1e6:.1f} MB"


def _kl(trial: Trial) -> str:
    kl: Estimate | None = trial.lost.kl
    bad = f"{trial.lost.non_finite} of {trial.lost.rows} rows not finite"
    return bad if kl is None else significant(kl.value)
