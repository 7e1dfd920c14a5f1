"""``python -m cplab``: golden files, validation, what is in a model file, checkpoints as GGUF files, and sound."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cplab.commandline import GATE_FAILED, GOOD, console, positive_list, run, size_pool, ticking
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
    reference: Annotated[
        str | None,
        typer.Option(help="oracle, or torch: the official class must agree. Default: oracle without talker."),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(help="How many frames, at least 2. Default: 33, or what is given.")
    ] = None,
    hidden: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Recorded hidden states [F, talker_hidden] f32.")
    ] = None,
    cb0: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Their CB0 codes, [F] or [F, 16]; checkpoints only.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Have the checkpoint's official talker say this.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the text. Default: auto.")] = None,
    speaker: Annotated[str | None, typer.Option(help="Who says it. Default: nobody in particular.")] = None,
    non_streaming: Annotated[
        bool, typer.Option("--non-streaming", help="The whole text in the prefill, not a token a frame.")
    ] = False,
    from_talker: Annotated[
        Path | None, typer.Option(metavar="PREFILL.npz", help="Have the official talker go on from this prefill.")
    ] = None,
    dump: Annotated[
        Path | None,
        typer.Option(metavar="FILE.npz", help="What the talker took in and gave. Default: beside the golden."),
    ] = None,
    arithmetic: Annotated[
        str, typer.Option(help="f32, or q8_0, q6_k, q5_0 or q4_0: of the model rounded to that format.")
    ] = "f32",
) -> int:
    """Make a golden file: inputs, codes and digests of logits."""
    from cplab.cachedir import require_writable
    from cplab.golden_inputs import Asked, given_inputs
    from cplab.golden_making import make_golden
    from cplab.oracle_quantised import in_arithmetic
    from cplab.sources import load_model

    asked = Asked(hidden, cb0, text, from_talker, language, speaker, non_streaming, dump, frames)
    asked.check()
    if reference not in (None, "oracle", "torch"):
        raise BadInputError(f"--reference {reference}: oracle or torch is wanted")
    if asked.speaks and reference == "oracle":
        raise BadInputError("--reference oracle: the talker is PyTorch's, so its codes are; leave the option out")
    require_writable(output)
    loaded = in_arithmetic(load_model(model), arithmetic)
    given = given_inputs(asked, model, loaded, output, ticking)
    for note in given.notes:
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    chosen = reference or ("torch" if asked.speaks else "oracle")
    with ticking("oracle frames", given.frames) as tick:
        made = make_golden(
            loaded,
            given.frames,
            reference=chosen,
            arithmetic=arithmetic,
            hidden=given.hidden,
            cb0_embed=given.cb0_embed,
            about=given.about,
            progress=tick,
        )
    given.check(made)
    made.save(output)
    over = made.provenance["frames_passed_over"]
    console.print(
        f"{output}: {len(made)} frames, {made.distinct_frames} distinct, smallest margin {made.margins.min():.3g}, "
        f"{output.stat().st_size / 1000:.0f} kB"
        + (f"; {over} passed over: the codes of another frame, or too close a margin" if over else ""),
        highlight=False,
        soft_wrap=True,
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
    size_pool(max(counts))

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
def packing(model: ModelOption = "synthetic:0.6b") -> int:
    """Show what packing BF16 without loss (the format bf12) comes to for every matrix of a model."""
    from cplab.packing_report import show
    from cplab.sources import load_model

    show(load_model(model), console)
    return GOOD


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="CHECKPOINT_DIR", help="config.json and safetensors.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where the code predictor's GGUF goes.")] = None,
    matrices: Annotated[
        str | None,
        typer.Option("--format", help="bf16, f16, f32, q8_0, q6_k, q5_0 or q4_0; default: as stored, bit for bit."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Formats by class of matrices, a line each; see the README.")
    ] = None,
    fit: Annotated[
        str | None,
        typer.Option(metavar="FRAMES", help="Fit Q4_0 to what matrices read: a golden file's frames, or seeded."),
    ] = None,
    talker: Annotated[Path | None, typer.Option(help="Write the talker too, as a qwen3 of llama.cpp.")] = None,
    kazeia: Annotated[Path | None, typer.Option(help="Folder for the Kazeia engine's three files, F16.")] = None,
) -> int:
    """Write a checkpoint's code predictor as a GGUF file, and say for every tensor what was done to it."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from cplab.export import planned
    from cplab.recipe import read_recipe

    mixed = None if recipe is None else read_recipe(recipe)
    parts = planned(folder, output, matrices=matrices, recipe=mixed, fit=fit, talker=talker, kazeia=kazeia)
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


@app.command()
def drafter(
    model: ModelOption = "synthetic:0.6b",
    golden: Annotated[
        Path | None, typer.Option("--golden", help="Recorded frames of these weights; default: their own golden.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: beside the model, where spec_* find it.")
    ] = None,
) -> int:
    """Fit what drafts of later codes add to the hidden state (spec_* variants), and keep it beside the model."""
    from cplab.cachedir import require_writable
    from cplab.golden import load_golden
    from cplab.golden_making import golden_for
    from cplab.sources import load_model
    from cplab.speculation import offsets

    loaded = load_model(model)
    path = offsets.path_beside(loaded) if output is None else output
    require_writable(path)
    with ticking("depths", offsets.DEPTHS) as tick:
        fitted = offsets.fit(loaded, load_golden(golden) if golden else golden_for(loaded), tick)
    offsets.save(loaded, fitted.offsets, path)
    console.print(f"{path}: fitted on {fitted.frames[0]} frames, judged on {fitted.frames[1]}", soft_wrap=True)
    for depth, (none, mean, descended) in enumerate(fitted.held, 1):
        console.print(
            f"{depth} ahead: {none:.1%} of drafts hold without, {mean:.1%} with the mean difference, "
            f"{descended:.1%} after gradient steps; kept: {fitted.kept_words(depth - 1)}",
            highlight=False,
            soft_wrap=True,
        )
    return GOOD


@app.command()
def orchestrate(
    talker: Annotated[
        str, typer.Option(help="A talker's GGUF file, or synthetic-talker:0.6b.")
    ] = "synthetic-talker:0.6b",
    cp: Annotated[str, typer.Option("--cp", help="The code predictor, as --model elsewhere.")] = "synthetic:0.6b",
    variant: Annotated[str, typer.Option(help="Which implementation.")] = "kv_bf16",
    threads: Annotated[int | None, typer.Option(help="Of talker and code predictor. Default: all CPUs.")] = None,
    frames: Annotated[int, typer.Option(help="How many at most.")] = 26,
    dump: Annotated[
        Path | None, typer.Option(metavar="FILE.npz", help="A talker dump: speak its prompt by its rules, and compare.")
    ] = None,
    teacher: Annotated[
        Path | None, typer.Option(metavar="FILE.npy", help="Codes \\[frames, 16] that are fed back.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option("--repetition-penalty", help="Of CB0s. Default: the dump's, or none.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw codes instead of taking the largest logit.")] = False,
    seed: Annotated[int | None, typer.Option(help="Of --sample. Default: 0.")] = None,
    check_pools: Annotated[
        int, typer.Option(metavar="ROUNDS", help="Measure both alone and in the loop, in turns.")
    ] = 0,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write codes.npy and times.json there.")] = None,
) -> int:
    """Talker and code predictor, frame by frame: the figures of a whole utterance beside the tablet's."""
    from cplab.cpus import allowed_cpus

    count = allowed_cpus() if threads is None else threads
    if check_pools < 0:
        raise BadInputError(f"--check-pools {check_pools}: at least 0 is wanted")
    size_pool(count)

    from cplab.cachedir import require_writable
    from cplab.orchestrate_compare import compared
    from cplab.orchestrate_prepare import Asked, prepared
    from cplab.orchestrate_show import TIMES, show, show_pools, write_files
    from cplab.thread_pools import check_pools as measured

    asked = Asked(talker, cp, variant, count, frames, dump, teacher, penalty, sample, seed)
    if out is not None:
        require_writable(out / TIMES)
    with prepared(asked) as ready:
        with ticking("frames", ready.frames) as tick:
            run = ready.speech.run(ready.frames, tick)
        against = None if ready.dump is None else compared(run, ready.dump)
        show(run, ready, asked, against, console)
        pools = None
        if check_pools:
            with ticking("rounds", check_pools) as tick:
                pools = measured(ready.speech, run, check_pools, count, tick)
            show_pools(pools, console)
    if out is not None:
        write_files(out, run, asked, against, pools)
    return GOOD if against is None or against.sums_are_right else GATE_FAILED


@app.command()
def wav(
    codes: Annotated[Path, typer.Option(metavar="FILE.npy", help="Codes [N, 16], as orchestrate --out writes them.")],
    decoder: Annotated[
        Path, typer.Option(metavar="DIR", help="A 12 Hz speech tokenizer, or a checkpoint's folder with one in it.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the .wav goes, mono, 16 bits.")],
) -> int:
    """Turn codes into sound by the official decoder."""
    from cplab.cachedir import require_writable
    from cplab.speech import SpeechDecoder, load_codes, write_wav

    require_writable(output)
    found = load_codes(codes)
    speech = SpeechDecoder(decoder)
    audio = speech.decode(found, str(codes))
    write_wav(output, audio, speech.rate_hz)
    console.print(
        f"{output}: {len(audio) / speech.rate_hz:.2f} s at {speech.rate_hz} Hz, {len(found)} frames, "
        f"largest sample {abs(audio).max():.3f}",
        highlight=False,
        soft_wrap=True,
    )
    return GOOD


def main() -> None:
    """Entry point of the ``cplab`` script."""
    sys.exit(run(app))


if __name__ == "__main__":
    main()
