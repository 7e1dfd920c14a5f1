"""The command ``recipe``, and ``quality --sensitivity``: which matrices to quantise, and how far."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bench.cli_options import Golden, Model, TeamSize
from cplab.cachedir import replacing, require_writable
from cplab.commandline import GATE_FAILED, GOOD, console, finite, size_pool
from cplab.errors import BadInputError

if TYPE_CHECKING:
    from bench.records.measured import Frozen

Formats = Annotated[str, typer.Option(help="That matrices may get, besides their own.")]
Grain = Annotated[
    Literal["class", "matrix"], typer.Option(help="What is given a format as one: a class, or each layer's and head.")
]
Frames = Annotated[int | None, typer.Option(help="Frames at most; default: all of the golden.", min=1)]
Codes = Annotated[
    Path | None, typer.Option("--codes", help="A .npy of recorded codes, \\[frames, 16], to pin instead.")
]
Fit = Annotated[
    str | None,
    typer.Option("--fit", metavar="FRAMES", help="Q4_0 fitted as `cplab export --fit` does it: seeded, or a golden."),
]
LeastAgreement = Annotated[
    float | None,
    typer.Option(
        help="Percent of codes (pinned) that a recommendation must keep, 0: any; default: what the naive Q8_0 keeps.",
        min=0,
        max=100,
        callback=finite,
    ),
]
Hidden = Annotated[Path | None, typer.Option("--hidden", help="A .npy of the hidden states that the codes came with.")]


def recipe(
    model: Model = "synthetic:0.6b",
    budget_ms: Annotated[
        float | None, typer.Option(help="Milliseconds a frame on this machine.", min=0, callback=finite)
    ] = None,
    budget_mb: Annotated[
        float | None, typer.Option(help="Megabytes that a frame streams.", min=0, callback=finite)
    ] = None,
    formats: Formats = "q8_0,q4_0",
    grain: Grain = "class",
    threads: TeamSize = None,
    golden: Golden = None,
    frames: Frames = None,
    codes: Codes = None,
    hidden: Hidden = None,
    fit: Fit = None,
    least_agreement: LeastAgreement = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the recipe goes, for `cplab export --recipe`.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write all that was found there.")] = None,
) -> int:
    """Search for the recipe of formats that loses least within a budget; exit code 2 where none keeps enough."""
    if (budget_ms is None) == (budget_mb is None):
        raise BadInputError("one budget is wanted: --budget-ms or --budget-mb")
    for path in (output, json):
        if path is not None:
            require_writable(path)
    count = sized(threads)

    from bench.quality.costs import Costs, frame_ms, measured_costs
    from bench.quality.floor import floor_of, recommended
    from bench.quality.naive_distance import recipe_distance
    from bench.quality.recipe_search import Search
    from bench.quality.sensitivity import units_at
    from bench.quality.show_recipes import print_recipe
    from bench.quality.trials_of import formats_of, subject
    from bench.records.recipe import RecipeFound
    from cplab.recipe import Recipe

    kinds = formats_of(formats)
    with console.status("float32, as the model has it") as status:
        on = subject(model, golden, frames, codes, hidden, fit, count)
        status.update("a frame in each format")
        costs = Costs(on.trials) if budget_ms is None else measured_costs(on.trials, kinds)
        budget = budget_ms if budget_ms is not None else (budget_mb or 0.0) * 1e6
        search = Search(on.trials, costs, units_at(on.trials, grain), kinds, status.update)
        ended = search.within(budget)
        status.update("what is enough")
        floor = floor_of(least_agreement, on.trials.model, on.trials.truth)
        judged = recommended(ended, on.trials, costs, budget, floor)
        status.update("the recipe's time, and the naive implementation of its formats")
        decoder = on.trials.decoder(judged.chosen.formats)
        timed = None if budget_ms is None else frame_ms([decoder], on.trials)[0]
        naive = recipe_distance(on.trials, judged.chosen)
    found = RecipeFound(
        warning=on.warning,
        model=on.about,
        frames=len(on.trials.truth),
        threads=count,
        budget=budget,
        cost_in=costs.unit,
        cost=costs.of(judged.chosen.formats),
        measured_ms=timed,
        chosen=judged.chosen,
        naive=naive,
        floor=floor,
        recommended=judged.kept,
        nearest=judged.nearest,
        nearest_cost=None if judged.nearest is None else costs.of(judged.nearest.formats),
        uniform=ended.uniform,
        steps=judged.steps,
        trials=len(on.trials),
    )
    print_recipe(found)
    if json is not None:
        write_record(json, found)
    if not found.recommended or (naive is not None and not naive.passed):
        return GATE_FAILED
    text = Recipe(found.chosen.formats).text()
    console.print(text or "nothing is to be quantised: the model is within the budget as it is", highlight=False)
    if output is not None and text:
        _write(output, text)
    return GOOD


def sensitivity(
    model: str,
    golden: Path | None,
    frames: int | None,
    codes: Path | None,
    hidden: Path | None,
    fit: str | None,
    threads: int | None,
    formats: str,
    grain: str,
    file: Path,
) -> int:
    """Quantise one class at a time, print what that loses and saves, and write it to ``file``; options as above."""
    count = sized(threads)

    from bench.quality.sensitivity import sensitivity as measured
    from bench.quality.show_recipes import print_sensitivity
    from bench.quality.trials_of import formats_of, subject

    kinds = formats_of(formats)
    with console.status("float32, as the model has it") as status:
        on = subject(model, golden, frames, codes, hidden, fit, count)
        found = measured(on.trials, kinds, grain, on.about, on.warning, status.update)
    print_sensitivity(found)
    write_record(file, found)
    console.print(str(file), highlight=False, markup=False, soft_wrap=True)
    return GOOD


def sized(threads: int | None) -> int:
    """The team that was asked for, or this machine's cores; the process's pool is made as large."""
    from bench.compare_run import home_threads

    count = threads or home_threads()
    size_pool(count)
    return count


def write_record(path: Path, found: Frozen) -> None:
    """Write a record as JSON."""
    _write(path, found.model_dump_json(by_alias=True, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
