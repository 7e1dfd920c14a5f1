"""The command ``formats``: which block formats would be worth a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from bench.cli_options import Golden, Model, TeamSize
from bench.cli_recipe import Codes, Frames, Hidden, sized, write_record
from bench.records.format_table import FormatTable
from cplab.cachedir import require_writable
from cplab.commandline import GOOD, console


def formats(
    model: Model = "synthetic:0.6b",
    threads: TeamSize = None,
    golden: Golden = None,
    frames: Frames = None,
    codes: Codes = None,
    hidden: Hidden = None,
    fit: Annotated[
        str, typer.Option("--fit", metavar="FRAMES", help="Of the fitted Q4_0: seeded, or a golden's file.")
    ] = "seeded",
    json: Annotated[Path | None, typer.Option("--json", help="Write the table there.")] = None,
) -> int:
    """Hold GGUF's block formats against each other: bytes a frame and what is lost, kernel or not."""
    if json is not None:
        require_writable(json)
    count = sized(threads)

    from bench.quality.format_table import format_table
    from bench.quality.trials_of import subject
    from cplab.input_energy import input_energies

    with console.status("float32, as the model has it") as status:
        on = subject(model, golden, frames, codes, hidden, None, count)
        own = on.trials.model
        found = format_table(own, on.trials.truth, input_energies(own, fit), on.about, on.warning, status.update)
    print_formats(found)
    if json is not None:
        write_record(json, found)
    return GOOD


def print_formats(found: FormatTable) -> None:
    """A row for each format, the warning first."""
    if found.warning:
        console.print(found.warning, style="yellow", markup=False, highlight=False, soft_wrap=True)
    title = f"{found.model.name}: {found.frames} frames, codes pinned, every matrix in one format"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("format", no_wrap=True)
    for heading in ("bits", "MB a frame", "KL mean", "agreement", "rmse"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("no larger and nearer", overflow="fold")
    for row in found.rows:
        lost = row.lost
        share = lost.agreement
        table.add_row(
            row.format,
            f"{row.bits_per_weight:.2f}",
            f"{row.bytes_per_frame / 1e6:.1f}",
            f"{lost.non_finite} rows not finite" if lost.kl is None else f"{lost.kl.value:.3g}",
            f"{100 * share.value:.1f} % [{100 * share.lo:.1f}, {100 * share.hi:.1f}]",
            "-" if lost.rmse is None else f"{lost.rmse.value:.3g}",
            ", ".join(row.beaten_by) or "none: on the front",
        )
    console.print(table)
    for name, reason in found.left_out.items():
        console.print(f"{name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    for line in kernel_words(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def kernel_words(found: FormatTable) -> list[str]:
    """Which formats of files have a kernel here and whose, and which are only read; nothing of records without that."""
    told = []
    if found.kernels:
        run = "; ".join(f"{name}: {', '.join(names)}" for name, names in found.kernels.items())
        told.append(f"with a kernel of their own here (kv_stored runs any mix of them): {run}")
    if found.only_read:
        told.append(f"only read from files, and expanded to float32: {', '.join(found.only_read)}")
    return told
