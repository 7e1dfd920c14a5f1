"""The commands about what quantising loses: ``quality`` and ``quality-report``."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bench.cli_options import Files, Golden, Model, TeamSize, TimeoutS
from bench.cli_recipe import Fit, Formats, Grain, LeastAgreement, sensitivity
from cplab.cachedir import replacing, require_writable
from cplab.commandline import GATE_FAILED, GOOD, console
from cplab.errors import CplabError

if TYPE_CHECKING:
    from bench.records import Summary
    from bench.records.quality import Quality
    from bench.records.recipe import RecipeFound, Sensitivity
    from bench.records.summarised import ModelFacts

Run = Annotated[
    Path | None, typer.Option("--run", help="A sweep's folder: its times go into the page's plot, beside agreement.")
]


def quality(
    model: Model = "synthetic:0.6b",
    variants: Annotated[
        str, typer.Option(help="Names, separated by commas, or all; default: one of each quantised law.")
    ] = "",
    threads: TeamSize = None,
    golden: Golden = None,
    frames: Annotated[int | None, typer.Option(help="Frames of the golden; default: all.", min=1)] = None,
    rollout: Annotated[int, typer.Option(help="Frames of the rollout; 0: none.", min=0)] = 500,
    talker: Annotated[
        str, typer.Option(help="In the rollout: a GGUF or synthetic-talker:0.6b (llama.cpp); default: a stand-in.")
    ] = "",
    codes: Annotated[
        Path | None, typer.Option("--codes", help="A .npy of recorded codes, \\[frames, 16], to pin besides.")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option("--hidden", help="A .npy of the hidden states that the codes came with.")
    ] = None,
    decoder: Annotated[
        Path | None,
        typer.Option("--decoder", metavar="DIR", help="A 12 Hz speech tokenizer: the recorded codes' sound, compared."),
    ] = None,
    by_matrices: Annotated[
        bool, typer.Option("--sensitivity", help="One class of matrices quantised at a time, instead of variants.")
    ] = False,
    formats: Formats = "q8_0,q4_0",
    grain: Grain = "class",
    fit: Fit = None,
    run: Run = None,
    least_agreement: LeastAgreement = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results.")] = Path("reports/quality"),
    files: Files = None,
    timeout: TimeoutS = None,
) -> int:
    """Tell how far variants are from what the model says in float32, and write it as JSON and as pages."""
    from bench.choosing import chosen_variants
    from bench.compare_run import home_threads
    from bench.quality.launching import TIMEOUT_S
    from bench.quality.run import Asked, measure_quality, usual_variants
    from bench.quality.show import print_outcome, print_quality

    if by_matrices:
        file = _new_folder(out) / "sensitivity.json"
        return sensitivity(model, golden, frames, codes, hidden, fit, threads, formats, grain, file)
    named = chosen_variants("" if variants.strip() == "all" else variants, files)
    asked = Asked(
        model=model,
        variants=named if variants.strip() or files else usual_variants(),
        threads=threads or home_threads(),
        golden=golden,
        frames=frames,
        rollout=rollout,
        talker=talker,
        recorded=codes,
        hidden=hidden,
        decoder=decoder,
        files=files or [],
        timeout_s=timeout or TIMEOUT_S,
        least_percent=least_agreement,
    )
    asked.check()
    times = _summary_of(run)
    folder = _new_folder(out)
    with console.status("") as status:
        found = measure_quality(asked, status.update, print_outcome)
    console.print()
    print_quality(found)
    with replacing(folder / "quality.json") as temporary:
        temporary.write_text(found.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    _write_pages(found, run, times, folder / "quality.html", folder / "quality.md")
    console.print(f"{folder}/quality.json, .html, .md", highlight=False, markup=False, soft_wrap=True)
    if all(cell.status == "skip" for cell in found.cells):
        raise CplabError("nothing was measured: every variant was skipped")
    return GATE_FAILED if any(cell.status in ("fail", "crash") for cell in found.cells) else GOOD


def quality_report(
    file: Annotated[Path, typer.Argument(help="A quality.json.")],
    run: Run = None,
    least_agreement: LeastAgreement = None,
    sensitivity_file: Annotated[
        Path | None, typer.Option("--sensitivity", help="A sensitivity.json of the same weights, to draw.")
    ] = None,
    recipe_file: Annotated[
        Path | None, typer.Option("--recipe", help="What bench recipe --json wrote of the same weights.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Where the page goes.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Where the Markdown goes.")] = None,
) -> int:
    """Write the pages of a quality.json again, with what else was recorded of the same weights."""
    from bench.records import UnreadableRecordError
    from bench.records.quality_reading import read_found_recipe, read_quality, read_sensitivity

    try:
        found = read_quality(file)
        classes = None if sensitivity_file is None else read_sensitivity(sensitivity_file)
        searched = None if recipe_file is None else read_found_recipe(recipe_file)
    except UnreadableRecordError as error:
        raise CplabError(str(error)) from error
    if least_agreement is not None:
        from bench.quality.floor import asked_floor

        found = found.model_copy(update={"floor": asked_floor(least_agreement)})
    if html is None and markdown is None:
        html, markdown = file.with_suffix(".html"), file.with_suffix(".md")
    for path, record in ((sensitivity_file, classes), (recipe_file, searched)):
        if record is not None:
            _require_same_weights(found, record.model, f"{path}: figures")
    _write_pages(found, run, _summary_of(run), html, markdown, classes, searched)
    for path in (html, markdown):
        if path is not None:
            console.print(str(path), highlight=False, markup=False, soft_wrap=True)
    return GOOD


def _new_folder(out: Path) -> Path:
    from bench import machine

    commit, dirty = machine.git_state(Path.cwd())
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{commit}{'-dirty' if dirty else ''}"
    folder = out / machine.machine_id() / name
    require_writable(folder.with_suffix(".json"))  # beside it: what is refused later leaves no empty folder
    return folder


def _summary_of(run: Path | None) -> Summary | None:
    """A sweep's summary, where one was named; CplabError where that folder has none."""
    if run is None:
        return None
    from bench.records import UnreadableRecordError
    from bench.run_reading import read_run

    try:
        return read_run(run)[0]
    except UnreadableRecordError as error:
        raise CplabError(str(error)) from error


def _require_same_weights(found: Quality, other: ModelFacts, what: str) -> None:
    if other.digest != found.model.digest:
        raise CplabError(f"{what} of {other.name}, whose weights are not those of {found.model.name}")


def _write_pages(
    found: Quality,
    run: Path | None,
    summary: Summary | None,
    html: Path | None,
    markdown: Path | None,
    classes: Sensitivity | None = None,
    searched: RecipeFound | None = None,
) -> None:
    from reports.quality_page import make_quality_page, write_quality_html, write_quality_markdown

    if summary is not None:
        _require_same_weights(found, summary.model, f"{run}: a run")
    page = make_quality_page(found, summary, classes, searched)
    if html is not None:
        write_quality_html(page, html)
    if markdown is not None:
        write_quality_markdown(page, markdown)
