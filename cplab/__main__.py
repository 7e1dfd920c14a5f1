"""``python -m cplab``: golden files, validation, what is in a model file, and checkpoints as GGUF files."""

from __future__ import annotations

import os
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cplab.commandline import GATE_FAILED, GOOD, console, positive_list, run
from cplab.errors import BadInputError

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The Qwen3-TTS code predictor: models and goldens.")

ModelOption = Annotated[str, typer.Option("--model", help="A checkpoint's folder, a GGUF file, or synthetic:0.6b.")]


@app.callback()
def _about() -> None:
    """Commands on models and goldens; measuring is `python -m bench`."""


@app.command()
def golden(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the .npz goes.")],
    model: ModelOption = "synthetic:0.6b",
    reference: Annotated[str, typer.Option(help="oracle, or torch: the official class must agree.")] = "oracle",
    frames: Annotated[int, typer.Option(help="How many frames, at least 2.")] = 33,
    arithmetic: Annotated[str, typer.Option(help="f32, or q8_0 or q4_0: of the model rounded to that format.")] = "f32",
) -> int:
    """Make a golden file: inputs, codes and digests of logits."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from cplab.cachedir import require_writable
    from cplab.golden_making import make_golden
    from cplab.oracle_quantised import in_arithmetic
    from cplab.sources import load_model

    if reference not in ("oracle", "torch"):
        raise BadInputError(f"--reference {reference}: oracle or torch is wanted")
    require_writable(output)
    loaded = in_arithmetic(load_model(model), arithmetic)
    columns = (TextColumn("oracle frames"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    screen = Console(stderr=True)
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task("", total=frames)
        made = make_golden(
            loaded, frames, reference=reference, arithmetic=arithmetic, progress=lambda: bar.advance(task)
        )
    made.save(output)
    console.print(
        f"{output}: {len(made)} frames, {made.distinct_frames} distinct, smallest margin {made.margins.min():.3g}, "
        f"{output.stat().st_size / 1000:.0f} kB",
        highlight=False,
    )
    return GOOD


@app.command()
def validate(
    model: ModelOption = "synthetic:0.6b",
    golden: Annotated[Path | None, typer.Option("--golden", help="A golden file; default: these weights' own.")] = None,
    variant: Annotated[str, typer.Option(help="Which implementation.")] = "kv_bf16",
    threads: Annotated[str, typer.Option(help="Such as 2, or 1,2,4, or 1-8.")] = "1",
    json: Annotated[Path | None, typer.Option("--json", help="Write every count and every mismatch there.")] = None,
) -> int:
    """Hold one implementation against a golden: the gate, each codebook, and what kind of difference each code is."""
    counts = positive_list(threads)
    if "numba" not in sys.modules:  # the pool is sized once, when numba is imported
        os.environ.setdefault("NUMBA_NUM_THREADS", str(max([*counts, os.cpu_count() or 1])))

    from cplab.cachedir import require_writable
    from cplab.gating import validate_cell
    from cplab.golden import load_golden
    from cplab.golden_making import golden_for
    from cplab.sources import load_model
    from cplab.validation_report import show, write_json
    from cplab.variant import get_variant

    if json is not None:
        require_writable(json)
    chosen = get_variant(variant)
    loaded = load_model(model)
    loaded.check_finite()
    original = load_golden(golden) if golden is not None else golden_for(loaded)
    cells = []
    for count in counts:
        cells.append(validate_cell(chosen, loaded, count, original))
        show(cells[-1], console)
        if json is not None:
            write_json(cells, model, json)
    return GOOD if all(cell.passed for cell in cells) else GATE_FAILED


@app.command()
def inspect(
    file: Annotated[
        Path, typer.Argument(help="A GGUF file of any dialect; its tensors are not read.", show_default=False)
    ],
) -> int:
    """Show a GGUF file: dialect, every tensor, the spec and where each number comes from, and what is wrong."""
    from cplab.commandline import fail
    from cplab.inspecting import show
    from cplab.sources.gguf_reading import surveyed

    survey = surveyed(file)
    show(survey, console)
    if survey.problems:
        return fail(f"{file}: {'; '.join(survey.problems)}")
    return GOOD


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="CHECKPOINT_DIR", help="config.json and safetensors.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the code predictor's GGUF goes.")] = None,
    matrices: Annotated[
        str | None, typer.Option("--format", help="bf16, f16, f32, q8_0 or q4_0; default: as stored, bit for bit.")
    ] = None,
    talker: Annotated[Path | None, typer.Option(help="Write the talker too, as a qwen3 of llama.cpp.")] = None,
    kazeia: Annotated[Path | None, typer.Option(help="Folder for the Kazeia engine's three files, F16.")] = None,
) -> int:
    """Write a checkpoint's code predictor as a GGUF file, and say for every tensor what was done to it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from cplab.export import planned

    parts = planned(folder, output, matrices=matrices, talker=talker, kazeia=kazeia)
    columns = (TextColumn("writing {task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    for part in parts:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(part.path.name, total=part.nbytes)
            done = part.write(partial(bar.advance, task))
        for told in done:
            console.print(str(told), highlight=False, markup=False, soft_wrap=True)
        counts = Counter(told.action for told in done)
        actions = ", ".join(f"{count} {action}" for action, count in counts.items())
        size = part.path.stat().st_size / 1e6
        console.print(f"{part.path}: {len(done)} tensors, {actions}; {size:.1f} MB", highlight=False, soft_wrap=True)
    return GOOD


def main() -> None:
    """Entry point of the ``cplab`` script."""
    sys.exit(run(app))


if __name__ == "__main__":
    main()
