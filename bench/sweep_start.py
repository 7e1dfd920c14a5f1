"""How a sweep starts: the machine's facts, a folder, the model and its golden, and the plan in writing."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.options import BASELINE, Contender, Options
from bench.plan import Plan, PlannedPair, PlannedVariant
from bench.records import CellRecord, StreamRecord
from bench.run_folder import RunFolder, run_folder_path
from bench.sweep_workers import Prepared, prepare
from cplab import __version__


@dataclass(slots=True)
class Start:
    """All that a sweep needs before it measures.

    Attributes:
        options: what was asked for.
        plan: the same as it stands in the folder.
        facts: of the machine.
        prepared: what the prepare workers found.
        folder: where the run goes, or None.
        records: what a run that was killed had measured.
        streams: the same, of several frames at once.
        spent_s: seconds of the budget that it had used.
        setup_s: seconds that the model, its golden and the kernels took, which are not of the budget.
    """

    options: Options
    plan: Plan
    facts: dict[str, Any]
    prepared: Prepared
    folder: RunFolder | None
    records: list[CellRecord] = field(default_factory=list)
    streams: list[StreamRecord] = field(default_factory=list)
    spent_s: float = 0.0
    setup_s: float = 0.0


def begin(options: Options) -> Start:
    """Start a new run.

    Raises:
        cplab.errors.CplabError: the model, its golden or the output folder cannot be had; nothing is left behind.
    """
    started, began = datetime.now(UTC), time.monotonic()
    facts = machine.facts(Path.cwd())
    commit, dirty = machine.git_state(Path.cwd())
    folder = None
    if options.write:
        folder = RunFolder(run_folder_path(machine.machine_id(), started, commit, dirty, options.out))
    try:
        prepared = prepare(options)
        plan = _plan(options, prepared[None], started, commit, dirty)
        if folder is not None:
            folder.write_machine(facts)
            folder.write_plan(plan)
    except BaseException:
        if folder is not None:
            folder.discard()
        raise
    return Start(options, plan, facts, prepared, folder, setup_s=time.monotonic() - began)


def _plan(options: Options, prepared: dict[str, Any], started: datetime, commit: str, dirty: bool) -> Plan:
    listed, reason = machine.thread_list()
    pair = options.pair
    names = [contender.name for contender in options.contenders]
    return Plan(
        command=" ".join(["python -m bench", *sys.argv[1:]]),
        started_utc=f"{started:%Y-%m-%dT%H:%M:%SZ}",
        commit=commit,
        dirty=dirty,
        tool_version=__version__,
        model=options.model,
        golden=options.golden,
        variant_files=options.variant_files,
        variants=[_planned(contender) for contender in options.contenders],
        baseline=pair.a.variant if pair else BASELINE if BASELINE in names else names[0],
        threads=options.threads or listed,
        threads_given=options.threads is not None,
        threads_reason="as asked" if options.threads else reason,
        everything=options.everything,
        rounds=options.rounds,
        frames=options.frames,
        budget_s=options.budget_s,
        least_rounds=options.least_rounds,
        quick=options.quick,
        seed=options.seed,
        order=options.order,
        aa=options.aa,
        soak_s=options.soak_s,
        talker=options.talker,
        batches=options.batches,
        no_talker=options.no_talker,
        pair=PlannedPair(
            a=(pair.a.variant, pair.a.threads), b=(pair.b.variant, pair.b.threads), least_change=pair.least_change
        )
        if pair
        else None,
        prepared=prepared,
        left_out=list(options.left_out),
    )


def _planned(contender: Contender) -> PlannedVariant:
    return PlannedVariant(
        name=contender.name,
        format=contender.variant.format,
        arithmetic=contender.variant.arithmetic,
        tier=contender.variant.tier,
        revision=contender.revision,
        source_digest=contender.source_digest,
        extra=contender.variant.extra,
    )
