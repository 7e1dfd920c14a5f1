"""A run's summary from its plan, its records and its machine, whether the run ended or was killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.compare_cells import compare_within
from bench.engine_comparisons import engine_comparisons
from bench.plain_comparisons import plain_comparisons
from bench.plan import Plan, PlannedVariant
from bench.records import CellRecord, Fidelity, ModelFacts, RunFacts, Summary, WithoutTalker
from bench.summary import CellInfo, summarise
from bench.talker_cell import PHASES, talker_of
from cplab.tablet import TABLET


def summary_of(
    plan: Plan, records: Sequence[CellRecord], machine: dict[str, Any], *, elapsed_s: float, interrupted: bool
) -> Summary:
    """Digest a run.

    Args:
        plan: what it set out to do.
        records: what it measured so far.
        machine: facts of the machine.
        elapsed_s: seconds that it measured.
        interrupted: it ended before it was through.
    """
    talker, without = talker_of(records)
    records = [record for record in records if record.phase not in PHASES]
    timed = [record for record in records if record.phase == "timed"]
    by_name = {variant.name: variant for variant in plan.variants}
    gated = {
        (record.variant, record.threads): record
        for record in records
        if record.phase == "gate" and not record.twin_of and record.variant in by_name
    }
    infos = [_info(by_name[name], threads, record) for (name, threads), record in gated.items()]
    summary = summarise(
        records,
        infos,
        model=ModelFacts(
            name=plan.model,
            spec=plan.prepared["spec"],
            digest=plan.prepared["digest"],
            synthetic=plan.prepared["synthetic"],
        ),
        machine=machine,
        run=RunFacts(
            command=plan.command,
            seed=plan.seed,
            rounds=max((record.round + 1 for record in timed), default=0),
            frames_per_round=max((len(record.samples_ns) for record in timed), default=0),
            started_utc=plan.started_utc,
            elapsed_s=round(elapsed_s, 1),
            interrupted=interrupted,
            commit=plan.commit,
            dirty=plan.dirty,
            tool_version=plan.tool_version,
            golden=f"{plan.prepared['golden_frames']} frames, codes by {plan.prepared['golden_reference']}",
            thread_list=plan.threads,
            thread_list_reason=plan.threads_reason,
            not_measured=[*([] if talker else [_no_talker(without)]), *plan.left_out],
        ),
        baseline=plan.baseline,
        talker=talker,
        without_talker=without,
    )
    noise = summary.repeatability.noise if summary.repeatability else None
    if plan.pair is None:
        engines = {variant.name for variant in plan.variants if variant.is_engine}
        return summary.model_copy(
            update={
                "comparisons": plain_comparisons(records, summary.cells, noise),
                "engines": engine_comparisons(records, summary.cells, engines, noise),
            }
        )
    found = compare_within(records, plan.pair.a, plan.pair.b, least_change=plan.pair.least_change, noise=noise)
    return summary.model_copy(update={"comparisons": [found] if found else []})


def _no_talker(without: WithoutTalker | None) -> str:
    reason = without.reason if without else "not measured in this run"
    return f"talker: {reason}; the tablet's {TABLET.talker_ms:g} ms stand in"


def _info(variant: PlannedVariant, threads: int, gated: CellRecord) -> CellInfo:
    found = gated.facts
    lossy = int(found.get("lossy_weights") or 0)
    return CellInfo(
        variant=variant.name,
        format=variant.format,
        arithmetic=variant.arithmetic,
        tier="quality" if lossy else variant.tier,
        threads=threads,
        lossy_weights=lossy,
        fidelity=Fidelity(teacher_forced=found.get("teacher_forced"), free_running=found.get("free_running")),
        reason=gated.reason,
        engine_note=str(found.get("engine_note") or ""),
        revision=variant.revision,
        source_digest=variant.source_digest,
    )
