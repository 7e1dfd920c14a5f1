"""What the talker's workers do: make its file, try a thread count, and time a prefill and single steps.

The talker is another engine's, and the lab has no law for its bits. What is asked of it before a time is kept is that
its hidden states and logits are finite; whether its settings are right is asked when they are tried
(`cplab.talker.talker_settings`).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.cell_conditions import Watch
from bench.job import Job
from bench.records import CellRecord, GateOutcome
from bench.worker_record import record_of

if TYPE_CHECKING:
    from cplab.orchestrate import Speaks

Float32 = NDArray[np.float32]

#: Steps before the timed ones.
WARMUP_STEPS = 2
TRIAL_STEPS = 4


@dataclass(frozen=True, slots=True)
class TalkerSamples:
    """Nanoseconds of one process.

    Attributes:
        first_prefill: the first call, which brings the weights into memory.
        prefill: the same again.
        warmup: steps that do not count.
        steps: the timed ones, one for each position after the warm-up's.
        finite: whether all hidden states were; the talker itself refuses logits that are not.
    """

    first_prefill: int
    prefill: int
    warmup: list[int]
    steps: list[int]
    finite: bool


def time_talker(talker: Speaks, prefill: Float32, steps: Float32, warmup: int = WARMUP_STEPS) -> TalkerSamples:
    """Prefill twice, then go on one position at a time.

    Args:
        talker: with room for all of it.
        prefill: ``[T, width]``.
        steps: an input for each step, the warm-up's first, ``[warmup + N, width]``.
        warmup: how many of them do not count.

    Raises:
        cplab.errors.CplabError: the engine gave up, or a logit is not finite.
    """
    clock = time.perf_counter_ns
    took: list[int] = []
    finite = True
    for _ in range(2):
        began = clock()
        heard = talker.prefill(prefill)
        took.append(clock() - began)
        finite = finite and bool(np.isfinite(heard.hidden).all())
    for x in steps:
        began = clock()
        heard = talker.step(x)
        took.append(clock() - began)
        finite = finite and bool(np.isfinite(heard.hidden).all())
    first, again, *each = took
    return TalkerSamples(first, again, each[:warmup], each[warmup:], finite)


def run_talker(job: Job) -> CellRecord:
    """Do a talker's job.

    Raises:
        cplab.errors.CplabError: the extra is missing, the file is no talker or does not fit, the engine gave up.
    """
    from cplab.llama.engine import bindings

    bindings()
    return _made(job) if job.phase == "talker_prepare" else _timed(job)


def _made(job: Job) -> CellRecord:
    from cplab.sources import load_model
    from cplab.talker import talker_file

    file = talker_file(job.talker)
    file.must_fit(load_model(job.model).spec)
    facts = {"talker": job.talker, "path": str(file.path.resolve())}
    return record_of(job, GateOutcome(status="pass", detail="prepared"), facts=facts)


def _timed(job: Job) -> CellRecord:
    import psutil

    from cplab.llama.engine import version
    from cplab.orchestrate import SEEDED_POSITIONS, seeded_prompt
    from cplab.sources import synthetic
    from cplab.sources.talker_file import read_talker_file
    from cplab.talker import Room, Talker

    file = read_talker_file(Path(job.talker))
    started = time.perf_counter()
    count = WARMUP_STEPS + job.frames
    talker = Talker(file, job.threads, Room(SEEDED_POSITIONS, count))
    try:
        load_s = time.perf_counter() - started
        inputs = synthetic.cb0_embeddings(f"{synthetic.PREFIX}talker-steps", count, file.width)
        watch = Watch(job.cpus, job.threads)
        found = time_talker(talker, seeded_prompt(file.width).prefill, inputs)
        facts = _facts(job) | watch.told() | {"positions": SEEDED_POSITIONS, "engine_note": talker.note}
    finally:
        talker.close()
    facts |= {"backend": version().partition(";")[0], "kind": file.kind}
    if not found.finite:
        wrong = f"{file.path.name}: a hidden state is NaN or infinite"
        return record_of(job, GateOutcome(status="fail", detail=wrong), reason=wrong, facts=facts)
    gate = GateOutcome(status="pass", detail=f"hidden states and logits of {count + 2} calls are finite")
    if job.phase == "talker_trial":
        return record_of(job, gate, warmup_ns=found.steps, load_s=round(load_s, 4), facts=facts)
    return record_of(
        job,
        gate,
        samples_ns=found.steps,
        prefill_ns=found.prefill,
        first_call_ns=found.first_prefill,
        warmup_ns=found.warmup,
        load_s=round(load_s, 4),
        rss_mb=round(psutil.Process().memory_info().rss / 1e6, 1),
        facts=facts,
    )


def _facts(job: Job) -> dict[str, Any]:
    from bench.software_facts import engine_builds, environment
    from cplab.cpus import affinity

    return {
        "cpus_asked": job.cpus,
        "cpus_got": sorted(affinity() or ()) or None,
        "engine_builds": engine_builds(),
        "environment": environment(os.environ),
        "loadavg_1m": round(os.getloadavg()[0], 2),
    }
