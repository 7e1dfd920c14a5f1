"""The command line: ``python -m bench list | gate | run | profile | sweep | compare | report | quality | ...``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.cli_formats import formats
from bench.cli_measuring import compare, run_one, sweep
from bench.cli_options import Files, Golden, Model, Threads, TimeoutS, Variants, one_variant
from bench.cli_quality import quality, quality_report
from bench.cli_recipe import recipe
from bench.cli_reporting import history, report
from cplab.cachedir import require_writable
from cplab.commandline import (
    GATE_FAILED,
    GOOD,
    MOST_THREADS,
    console,
    fail,
    positive_list,
    run,
    size_pool,
)
from cplab.errors import BadInputError, CplabError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Which code predictor is fast and right on this machine."
)

app.command("run")(run_one)
app.command()(sweep)
app.command()(compare)
app.command()(report)
app.command()(history)
app.command()(quality)
app.command("quality-report")(quality_report)
app.command()(recipe)
app.command()(formats)


@app.command("list")
def list_variants(files: Files = None) -> int:
    """Name every variant that is installed, with what it is."""
    from bench.choosing import chosen_variants

    table = Table(box=None, pad_edge=False)
    for heading in ("variant", "format", "arithmetic", "tier", "what it is"):
        table.add_column(heading, no_wrap=heading != "what it is")
    for variant in chosen_variants("", files):
        table.add_row(variant.name, variant.format, variant.arithmetic, variant.tier, variant.summary)
    console.print(table)
    console.print(
        "\nexternal:LIB.so or external:COMMAND is an engine of your own; python -m bench engine-header tells how",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return GOOD


@app.command("engine-header")
def engine_header(
    example: Annotated[bool, typer.Option("--example", help="Print an engine in plain C instead.")] = False,
) -> int:
    """Print what an engine of your own must have to be a variant: a C header, and a protocol for programs."""
    from cplab.external import EXAMPLE, HEADER, shipped_text

    console.print(shipped_text(EXAMPLE if example else HEADER), end="", highlight=False, markup=False, soft_wrap=True)
    return GOOD


@app.command()
def gate(
    model: Model = "synthetic:0.6b",
    variants: Variants = "",
    threads: Threads = "1,2",
    frames: Annotated[int | None, typer.Option(help="Frames of the golden, at least 2; default: all.")] = None,
    golden: Golden = None,
    files: Files = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the records there.")] = None,
    summary: Annotated[Path | None, typer.Option("--summary", help="Append a Markdown table there, for CI.")] = None,
    timeout: TimeoutS = None,
) -> int:
    """Ask of every cell whether it is right: bits, codes, stale state, batches, float modes."""
    from bench.choosing import chosen_variants
    from bench.gate_run import gate_cells, write_json, write_markdown

    for path in (json, summary):
        if path is not None:
            require_writable(path)
    records = gate_cells(
        model, chosen_variants(variants, files), positive_list(threads), frames=frames, golden=golden, files=files,
        timeout_s=timeout,
    )  # fmt: skip
    if json is not None:
        write_json(records, json)
    if summary is not None:
        write_markdown(records, summary)
    bad = [record for record in records if record.gate.status in ("fail", "crash")]
    if not any(record.gate.status == "pass" for record in records) and not bad:
        raise CplabError("nothing was gated: every variant was skipped")
    return GATE_FAILED if bad else GOOD


@app.command()
def passes(
    format: Annotated[str, typer.Option(help="How the weights are held: bf16, q8_0, ...")] = "bf16",
    threads: Annotated[int, typer.Option("--threads", "-t", help="Team size.", min=1, max=MOST_THREADS)] = 2,
    model: Model = "synthetic:0.6b",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=3)] = 12,
) -> int:
    """Time passes over 1, 2, 4, 8 and 16 tokens against one token and the multiply-add peak."""
    size_pool(threads)
    from bench.errors import GateFailedError
    from bench.passes import measured_passes, show
    from cplab.sources import load_model

    try:
        rows = measured_passes(load_model(model), format, threads, rounds)
    except GateFailedError as error:
        fail(str(error))
        return GATE_FAILED
    show(rows, f"passes of {format} on {threads} threads, {model}")
    return GOOD


@app.command()
def speculation(
    format: Annotated[str, typer.Option(help="How the weights are held: bf16, q8_0, ...")] = "bf16",
    threads: Annotated[int, typer.Option("--threads", "-t", help="Team size.", min=1, max=MOST_THREADS)] = 2,
    model: Model = "synthetic:0.6b-predictable",
    rounds: Annotated[int, typer.Option(help="Interleaved rounds.", min=3)] = 12,
    shares: Annotated[str, typer.Option(help="Shares of drafts that hold, 0..1.")] = "",
    drafter: Annotated[
        str, typer.Option(help="What drafts: later heads, or the model in a format of fewer bytes (q4_0, q8_0).")
    ] = "heads",
    out: Annotated[
        Path | None, typer.Option("--out", help="A run's folder: keep the curve there, and bench report shows it.")
    ] = None,
) -> int:
    """Time exact speculation against the plain decoder, as a curve over the share of drafts that hold."""
    size_pool(threads)
    from bench.errors import GateFailedError
    from bench.speculation import SHARES, measured_curve, show
    from bench.speculation_record import keep_curve, require_place
    from cplab.sources import load_model

    try:
        wanted = [float(share) for share in shares.split(",")] if shares else list(SHARES)
    except ValueError:
        raise BadInputError(f"shares are {shares!r}; numbers from 0 to 1 are wanted, as in 0,0.5,1") from None
    if not all(0 <= share <= 1 for share in wanted):
        raise BadInputError(f"shares are {shares!r}; numbers from 0 to 1 are wanted, as in 0,0.5,1")
    if out is not None:
        require_place(out)
    weights = load_model(model)
    try:
        curve = measured_curve(weights, format, threads, rounds, wanted, drafter)
    except GateFailedError as error:
        fail(str(error))
        return GATE_FAILED
    drafted = "" if drafter == "heads" else f", drafts by {drafter}"
    show(curve, format, f"speculation over {format}{drafted} on {threads} threads, {model}")
    if out is not None:
        kept = keep_curve(out, weights, curve.variant, f"kv_{format}", threads, rounds, curve.plain_ms, curve.points)
        console.print(str(kept), highlight=False, soft_wrap=True)
    return GOOD


@app.command()
def profile(
    variant: Annotated[str, typer.Argument(help="Which implementation.")],
    threads: Annotated[int, typer.Option("--threads", "-t", help="Team size.", min=1, max=MOST_THREADS)] = 1,
    model: Model = "synthetic:0.6b",
    frames: Annotated[int, typer.Option(help="Pairs of frames, with and without the lap timer.", min=1)] = 30,
    golden: Golden = None,
    files: Files = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the profile and its samples there.")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with a stacked plot there.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the stacked plot there.")] = None,
    timeout: TimeoutS = None,
) -> int:
    """Tell where a frame's time goes: by part and by pass, with bytes and GB/s."""
    from bench import profile_show
    from bench.profile_run import profile_cell

    for path in (json, html, svg):
        if path is not None:
            require_writable(path)
    record, found = profile_cell(
        model, one_variant(variant, files), threads, frames=frames, golden=golden, files=files, timeout_s=timeout
    )
    if found is None:
        profile_show.print_failure(record)
        return GATE_FAILED
    profile_show.print_profile(found)
    profile_show.write_files(found, json=json, html=html, svg=svg)
    return GOOD


@app.command()
def roofline(
    threads: Threads = "",
    json: Annotated[Path | None, typer.Option("--json", help="Write the roofline there.")] = None,
) -> int:
    """Measure what this machine can do at most: read bandwidth by size, multiply-adds by instructions."""
    from bench.roofline_show import measure_and_show

    if json is not None:
        require_writable(json)
    return measure_and_show(positive_list(threads) if threads else None, json)


@app.command()
def doctor() -> int:
    """Grade this machine as a place to measure on; changes nothing."""
    from bench import doctor as examination
    from bench.choosing import threading_layer
    from bench.machine import facts, thread_list

    console.print(examination.render(examination.examine(facts(Path.cwd()), threading_layer())))
    counts, reason = thread_list()
    console.print(f"a sweep's thread counts: {', '.join(map(str, counts))} ({reason})", highlight=False, markup=False)
    return GOOD


def main() -> int:
    """Run the command line and give its exit code."""
    return run(app)
