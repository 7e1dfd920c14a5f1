"""The commands that gate and measure: ``run``, ``sweep`` and ``compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bench.cli_options import (
    Batch,
    Files,
    Golden,
    Model,
    Out,
    Seed,
    TeamSize,
    Threads,
    TimeoutS,
    Variants,
    one_variant,
    options_for,
)
from cplab.cachedir import require_writable
from cplab.commandline import GATE_FAILED, GOOD, WRONG_USE, console, positive_list
from cplab.errors import CplabError

if TYPE_CHECKING:
    from bench.records import Streams, Summary
    from bench.sweep import Outcome

RUNS = Path("reports/runs")
OrderOption = Annotated[
    Literal["random", "abba"], typer.Option(help="Cells shuffled in every round, or their order turned round.")
]
#: What may be said beside --resume; all else is the run's own.
_OF_RESUME = ("resume", "out", "timeout")


def run_one(
    variant: Annotated[str, typer.Argument(help="Which implementation.")],
    threads: Annotated[str, typer.Option("--threads", "-t", help="Such as 2, or 1,2,4.")] = "1",
    model: Model = "synthetic:0.6b",
    rounds: Annotated[int, typer.Option(help="Processes, one after another.", min=1)] = 3,
    frames: Annotated[int, typer.Option(help="Timed frames in each.", min=1)] = 10,
    golden: Golden = None,
    files: Files = None,
    timeout: TimeoutS = None,
) -> int:
    """Gate and measure one variant, without writing anything."""
    from bench.choosing import contenders_of
    from bench.show import print_cells, print_figures
    from bench.sweep import sweep as run_sweep

    counts = positive_list(threads)
    contenders = contenders_of([one_variant(variant, files)])
    outcome = run_sweep(
        options_for(
            model, contenders, golden, files, timeout, threads=counts, rounds=rounds, frames=frames, write=False
        )
    )
    print_cells(outcome.summary)
    print_figures(outcome.summary)
    return code_of(outcome.summary)


def sweep(
    context: typer.Context,
    model: Model = "synthetic:0.6b",
    variants: Variants = "",
    everything: Annotated[bool, typer.Option("--all", help="All variants at all thread counts, no budget.")] = False,
    threads: Threads = "",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds; default: 6, then as many as wide cells need and fit.", min=1)
    ] = None,
    frames: Annotated[int | None, typer.Option(help="Timed frames a round; default: what fits.", min=1)] = None,
    time_budget: Annotated[float, typer.Option(help="Seconds for gates and rounds.", min=1)] = 240.0,
    quick: Annotated[bool, typer.Option("--quick", help="A first look in under 90 s: fewer rounds.")] = False,
    aa: Annotated[bool, typer.Option("--aa", help="Measure the fastest cell twice: the run's own noise.")] = False,
    soak: Annotated[
        float | None, typer.Option(help="Seconds of the fastest cell without a break, at the end.", min=1, max=86400)
    ] = None,
    talker: Annotated[
        str, typer.Option(help="Its GGUF, or synthetic-talker:0.6b; default: the seeded one of a seeded model's width.")
    ] = "",
    no_talker: Annotated[bool, typer.Option("--no-talker", help="Leave the talker out.")] = False,
    batch: Batch = "",
    order: OrderOption = "random",
    since: Annotated[str, typer.Option(help="Only variants whose sources differ from this git revision's.")] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest run that did not end.")] = False,
    out: Out = RUNS,
    golden: Golden = None,
    files: Files = None,
    seed: Seed = 0,
    timeout: TimeoutS = None,
) -> int:
    """Gate and measure the variants on this machine, and write a report."""
    if resume:
        return _resume(context, out, timeout)
    from bench.choosing import chosen_variants, contenders_of
    from bench.cpu_topology import thread_list
    from bench.default_variants import default_variants
    from bench.options import QUICK_BUDGET_S
    from bench.since import changed_since
    from bench.sweep import sweep as run_sweep

    if talker and no_talker:
        raise CplabError("--talker and --no-talker: one of them")
    counts = positive_list(threads) if threads else None
    chosen = chosen_variants(variants, files)
    left_out: list[str] = []
    if not variants.strip() and not everything:
        chosen, left_out = default_variants(chosen, model, files or [])
    contenders = contenders_of(chosen)
    batches = [count for count in positive_list(batch, "batch") if count > 1] if batch else []
    if since:
        contenders, same = changed_since(since, contenders)
        left_out += [f"{name}: its sources are those of {since}" for name in same]
        if not contenders:
            console.print(f"nothing to measure: no variant's sources differ from those of {since}", highlight=False)
            return GOOD
    options = options_for(
        model,
        contenders,
        golden,
        files,
        timeout,
        threads=counts,
        everything=everything,
        rounds=rounds,
        frames=frames,
        budget_s=min(time_budget, QUICK_BUDGET_S) if quick else time_budget,
        least_rounds=1 if quick else 6,
        quick=quick,
        out=out,
        seed=seed,
        order=order,
        aa=aa,
        roofline=not quick,
        profile=not quick,
        soak_s=soak,
        talker=None if no_talker else talker,
        no_talker=no_talker,
        batches=batches,
        left_out=left_out,
    )
    if counts is None:
        listed, why = thread_list()
        console.print(f"threads: {', '.join(map(str, listed))} ({why})", style="dim", highlight=False, markup=False)
    return _show(run_sweep(options))


def _resume(context: typer.Context, out: Path, timeout: float | None) -> int:
    given = [
        parameter
        for parameter in context.params
        if parameter not in _OF_RESUME and getattr(context.get_parameter_source(parameter), "name", "") == "COMMANDLINE"
    ]
    if given:
        shown = {"everything": "all", "files": "variant-file"}
        names = ", ".join(sorted(f"--{shown.get(name, name).replace('_', '-')}" for name in given))
        raise CplabError(f"--resume goes on with the run's own options; leave out {names}")
    from bench.resuming import take_up
    from bench.sweep import go_on

    start = take_up(out, timeout)
    rounds = len({record.round for record in start.records if record.phase == "timed"})
    told = f"going on with the run of {start.plan.started_utc} ({rounds} rounds begun): {start.plan.command}"
    console.print(told, highlight=False, soft_wrap=True, markup=False)
    return _show(go_on(start))


def _show(outcome: Outcome) -> int:
    from bench.show import print_cells
    from bench.show_streams import print_streams

    print_cells(outcome.summary)
    if outcome.streams is not None:
        print_streams(outcome.streams)
    if outcome.note:
        console.print(outcome.note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if outcome.folder is not None:
        console.print(f"\nreport: {outcome.folder / 'report.html'}", highlight=False, soft_wrap=True)
    return code_of(outcome.summary, outcome.streams)


def compare(
    a: Annotated[str, typer.Argument(help="A run (folder or file), a variant, or a variant's revision: NAME@REV.")],
    b: Annotated[str, typer.Argument(help="The same kind of thing: what is judged beside A.")],
    threads: TeamSize = None,
    model: Model = "synthetic:0.6b",
    rounds: Annotated[
        int | None, typer.Option(help="Rounds; default: 12, or until the answer is narrow.", min=1)
    ] = None,
    frames: Annotated[int | None, typer.Option(help="Timed frames a round; default: what fits.", min=1)] = None,
    time_budget: Annotated[float, typer.Option(help="Seconds for gates and rounds.", min=1)] = 180.0,
    threshold: Annotated[str, typer.Option(help="The least change that counts.")] = "2%",
    no_aa: Annotated[bool, typer.Option("--no-aa", help="Do not measure A twice for the run's noise.")] = False,
    order: OrderOption = "abba",
    markdown: Annotated[Path | None, typer.Option(help="Write a table for a pull request there.")] = None,
    out: Out = RUNS,
    golden: Golden = None,
    files: Files = None,
    seed: Seed = 0,
    timeout: TimeoutS = None,
) -> int:
    """Is B slower than A? 0: same or faster, 4: slower, 3: undecided or nothing to compare."""
    from bench.compare_show import exit_code, print_comparison, share_of, write_markdown

    least_change = share_of(threshold)
    if markdown is not None:
        require_writable(markdown)
    if Path(a).exists() and Path(b).exists():
        from bench.compare_files import compare_files

        found = compare_files(Path(a), Path(b), least_change)
    else:
        from bench.compare_run import compare_contenders

        found = compare_contenders(
            a,
            b,
            lambda contenders, **asked: options_for(
                model, contenders, golden, files, timeout, rounds=rounds, frames=frames, budget_s=time_budget,
                order=order, out=out, seed=seed, aa=not no_aa, **asked,
            ),
            threads=threads,
            files=files,
            least_change=least_change,
        )  # fmt: skip
    print_comparison(found)
    if markdown is not None:
        write_markdown(found, markdown)
    return exit_code(found)


def code_of(summary: Summary, streams: Streams | None = None) -> int:
    """A sweep's exit code."""
    if summary.run.interrupted:
        return WRONG_USE
    without = summary.without_talker
    wrong = [cell.gate for cell in summary.cells] + ([without.status] if without else [])
    wrong += [point.gate for point in streams.points] if streams else []
    return GATE_FAILED if any(status in ("fail", "crash") for status in wrong) else GOOD
