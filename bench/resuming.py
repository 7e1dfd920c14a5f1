"""``bench sweep --resume``: going on with a run that was killed or interrupted, where its records end."""

from __future__ import annotations

from pathlib import Path

from bench import machine
from bench.choosing import chosen_variants, contenders_of
from bench.errors import UnfinishedRunError
from bench.options import Options
from bench.plan import Plan, read_plan
from bench.records import STREAM_RECORDS_FILE, read_records, read_stream_records
from bench.run_folder import RunFolder
from bench.sweep_start import Start
from bench.sweep_workers import prepare
from bench.unfinished import elapsed_s, newest_unfinished


def take_up(out: Path, timeout_s: float | None = None) -> Start:
    """The newest run under a folder that did not end, ready to go on: same cells, same seed, its records kept.

    Rounds that it had begun are completed. The time budget is what the run had left of its own.

    Args:
        out: folder for runs.
        timeout_s: seconds after which a worker counts as hung.

    Raises:
        UnfinishedRunError: there is none, or what it measured has changed since.
        cplab.errors.CplabError: the model or its golden cannot be had.
    """
    path = newest_unfinished(out, machine.machine_id())
    plan = read_plan(path)
    if plan is None:
        raise UnfinishedRunError(f"{path}: no plan in it; it cannot be gone on with")
    if plan.pair is not None:
        raise UnfinishedRunError(f"{path}: a comparison; its other revision is gone with it, compare again")
    options = _options(plan, out, timeout_s)
    _require_the_same_sources(plan, options, path)
    prepared = prepare(options)
    if prepared[None]["digest"] != plan.prepared.get("digest"):
        raise UnfinishedRunError(f"{path}: {plan.model} has other weights now; begin a new run")
    records = read_records(path / "records.jsonl", torn=True)
    streams = read_stream_records(path / STREAM_RECORDS_FILE, torn=True)
    folder = RunFolder.reopened(path, records)
    facts = machine.facts(Path.cwd())
    return Start(options, plan, facts, prepared, folder, records, streams, elapsed_s(records))


def _options(plan: Plan, out: Path, timeout_s: float | None) -> Options:
    names = ",".join(variant.name for variant in plan.variants)
    files = [Path(name) for name in plan.variant_files]
    return Options(
        model=plan.model,
        contenders=contenders_of(chosen_variants(names, files)),
        threads=plan.threads if plan.threads_given else None,
        everything=plan.everything,
        rounds=plan.rounds,
        frames=plan.frames,
        budget_s=plan.budget_s,
        least_rounds=plan.least_rounds,
        quick=plan.quick,
        out=out,
        golden=plan.golden,
        variant_files=plan.variant_files,
        seed=plan.seed,
        timeout_s=timeout_s,
        order=plan.order,
        aa=plan.aa,
        roofline=not plan.quick and plan.pair is None,
        profile=not plan.quick and plan.pair is None,
        soak_s=plan.soak_s,
        talker=plan.talker,
        batches=plan.batches,
        no_talker=plan.no_talker,
        left_out=plan.left_out,
    )


def _require_the_same_sources(plan: Plan, options: Options, path: Path) -> None:
    now = {contender.name: contender.source_digest for contender in options.contenders}
    changed = [variant.name for variant in plan.variants if variant.source_digest != now.get(variant.name)]
    if changed:
        raise UnfinishedRunError(f"{path}: the code of {', '.join(changed)} has changed since; begin a new run")
