"""Run folders of made-up records: finished, killed half-way, or of another machine. None was measured."""

from __future__ import annotations

import numpy as np
from test_summary import record, timed

from bench.plan import Plan, PlannedVariant
from bench.plan_summary import summary_of
from bench.run_folder import RunFolder

MACHINE = {"cpu": {"model": "Imaginary 9000", "arch": "x86_64", "physical": 2, "logical": 4}, "memory": {}}
BASE_MS = {"recompute_f16": 300.0, "kv_bf16": 60.0, "kv_f16": 61.0}


def plan(names=("recompute_f16", "kv_bf16"), **changes):
    variants = [
        PlannedVariant(name=name, format="f16", arithmetic="f32", tier="exact", source_digest=f"digest-{name}")
        for name in names
    ]
    fields = {
        "command": "python -m bench sweep", "started_utc": "2001-02-03T04:05:06Z", "commit": "abcdef012",
        "dirty": False, "tool_version": "0", "model": "synthetic:0.6b", "variants": variants,
        "baseline": "recompute_f16",
        "threads": [2], "threads_given": True, "threads_reason": "made up", "budget_s": 240.0,
        "prepared": {
            "spec": {"layers": 5}, "digest": "0" * 16, "synthetic": True, "golden_frames": 33,
            "golden_reference": "torch",
        },
    }  # fmt: skip
    return Plan(**(fields | changes))


def records(names=("recompute_f16", "kv_bf16"), rounds=12, seed=1, factors=None):
    """The gate's records and rounds with 1 % noise of each cell's own and 10 % of each round's, which all share."""
    random = np.random.default_rng(seed)
    shared = random.normal(0, 0.1, rounds)
    made = [record(name) for name in names]
    for number in range(rounds):
        for name in names:
            ms = BASE_MS[name] * (factors or {}).get(name, 1.0) * np.exp(shared[number] + random.normal(0, 0.01))
            made.append(timed([ms, ms * 1.001], name, round=number))
    return made


def finished(folder, made=None, machine=None, **changes):
    """A run's folder as a sweep writes it."""
    made = records() if made is None else made
    planned = plan(tuple(dict.fromkeys(one.variant for one in made)), **changes)
    with RunFolder(folder) as run:
        for one in made:
            run.append(one)
        run.write_plan(planned)
        run.write_machine(machine or MACHINE)
        run.write_summary(summary_of(planned, made, machine or MACHINE, elapsed_s=1.0, interrupted=False))
    return run.path
