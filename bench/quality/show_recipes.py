"""Sensitivities and searches for recipes, on the terminal."""

from __future__ import annotations

from rich.table import Table

from bench.records.recipe import RecipeFound, Sensitivity, Trial
from cplab.commandline import console
from cplab.recipe import ALL


def print_sensitivity(found: Sensitivity) -> None:
    """A row for each class in each format: what it loses, what it saves, and what a saved megabyte costs."""
    _warn(found.warning)
    base = found.base
    console.print(
        f"{found.model.name}: {found.frames} frames, codes pinned; as it is {base.bytes_per_frame / 1e6:.1f} MB a "
        f"frame, KL {base.damage:.3g}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    for heading in ("quantised alone", "format"):
        table.add_column(heading, no_wrap=True)
    for heading in ("saves MB", "share", "KL mean", "agreement", "rmse", "KL a GB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for trial in found.trials:
        ((unit, kind),) = trial.formats.items()
        saved = base.bytes_per_frame - trial.bytes_per_frame
        rate = (trial.damage - base.damage) / saved * 1e9 if saved > 0 else None
        table.add_row(
            unit,
            kind,
            f"{saved / 1e6:.1f}",
            f"{100 * saved / base.bytes_per_frame:.1f} %",
            _kl(trial),
            *_lost(trial),
            "-" if rate is None else f"{rate:.3g}",
        )
    console.print(table)


def print_recipe(found: RecipeFound) -> None:
    """The steps, the recipe beside formats throughout, and what it takes."""
    _warn(found.warning)
    unit = found.cost_in
    if found.steps:
        table = Table(box=None, pad_edge=False, title="steps", title_justify="left")
        for heading in ("", "matrices", "format"):
            table.add_column(heading, no_wrap=True)
        for heading in (unit, "KL mean"):
            table.add_column(heading, justify="right")
        for number, step in enumerate(found.steps, 1):
            what = f"{number} gave back" if step.gave_back else str(number)
            kind = step.format or "its own"
            table.add_row(
                what,
                step.unit,
                kind,
                _cost(step.cost, unit),
                "not finite" if step.damage is None else f"{step.damage:.3g}",
            )
        console.print(table)
    table = Table(box=None, pad_edge=False)
    table.add_column("recipe", no_wrap=True)
    for heading in ("MB a frame", "KL mean", "agreement", "rmse"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, trial in (("chosen", found.chosen), *((f"all {_only(trial)}", trial) for trial in found.uniform)):
        table.add_row(name, f"{trial.bytes_per_frame / 1e6:.1f}", _kl(trial, interval=True), *_lost(trial))
    console.print(table)
    told = f"{_cost(found.cost, unit)} of {_cost(found.budget, unit)} {unit}"
    if found.cost_in == "ms":
        told += f", estimated from whole frames in each format; measured {found.measured_ms:.2f} ms on "
        told += f"{found.threads} threads (a few frames: `bench sweep` on the exported file judges)"
    console.print(f"{told}; {found.trials} recipes measured on {found.frames} frames", highlight=False, soft_wrap=True)
    if len(found.chosen.formats) == 1 and ALL in found.chosen.formats:
        console.print("one format throughout loses least within the budget", highlight=False)
    if found.naive is not None:
        told = f"beside the naive implementation of the same formats: {found.naive.detail}"
        console.print(told, style="" if found.naive.passed else "red", highlight=False, markup=False, soft_wrap=True)
    if not found.recommended:
        console.print(not_recommended(found), style="yellow", highlight=False, markup=False, soft_wrap=True)


def not_recommended(found: RecipeFound) -> str:
    """Why there is no recommendation, and what the nearest would cost."""
    assert found.floor is not None
    unit, share = found.cost_in, 100 * found.floor.least
    most = 100 * found.chosen.lost.agreement.value
    told = (
        f"no recommendation: nothing that was measured within {_cost(found.budget, unit)} {unit} keeps {share:.1f} % "
        f"of the codes ({found.floor.source}); what loses least there keeps {most:.1f} %. "
    )
    if found.nearest is None or found.nearest_cost is None:
        return told + "Nor does anything else that was measured."
    kept = f"{100 * found.nearest.lost.agreement.value:.1f} %"
    return (
        told + f"The nearest that does costs {_cost(found.nearest_cost, unit)} {unit}: {found.nearest.named} ({kept})."
    )


def _kl(trial: Trial, interval: bool = False) -> str:
    kl = trial.lost.kl
    if kl is None:
        return f"{trial.lost.non_finite} rows not finite"
    return f"{kl.value:.3g}" + (f" [{kl.lo:.2g}, {kl.hi:.2g}]" if interval else "")


def _lost(trial: Trial) -> tuple[str, str]:
    rmse = trial.lost.rmse
    return f"{100 * trial.lost.agreement.value:.1f} %", "-" if rmse is None else f"{rmse.value:.3g}"


def _only(trial: Trial) -> str:
    return ", ".join(trial.formats.values())


def _cost(cost: float, unit: str) -> str:
    return f"{cost:.2f}" if unit == "ms" else f"{cost:,.0f}"


def _warn(warning: str) -> None:
    if warning:
        console.print(warning, style="yellow", markup=False, highlight=False, soft_wrap=True)
