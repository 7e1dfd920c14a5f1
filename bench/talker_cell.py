"""The talker as one more cell of a sweep's rounds: which one, on how many threads, and what its records come to.

Each swept thread count up to the physical cores (at most the three largest) gets a short trial before the budget's
clock starts, and the fastest one a worker in every round. It need not be the code predictor's: the two take turns, and
each may have its own. Whatever becomes of the talker costs no other cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.markup import escape

from bench import machine
from bench.cells import LEAST_FRAMES, SLACK, Cell, quick_ms, worker_seconds
from bench.job import Job
from bench.launch import Launcher
from bench.options import Options
from bench.records import CellRecord, GateOutcome, Talker, WithoutTalker
from bench.repeating import disturbed_rounds
from bench.stats import median_of_rounds
from bench.talker_timing import TRIAL_STEPS
from bench.timed_rounds import rounds_of, timed_records
from cplab.errors import BadInputError
from cplab.sources import synthetic, synthetic_talker

#: Under which name the talker stands among cells; no variant is called so.
NAME = "(talker)"
PHASES = ("talker_trial", "talker")
#: Thread counts that are tried.
MOST_TRIED = 3


class TalkerCell:
    """The talker of one sweep.

    Args:
        options: of the sweep.
        spec: of its model.
        threads: the sweep's thread counts.
        physical: cores that may be used.

    Attributes:
        cells: the one to measure in each round, or none.
        trial: its trial's record.
    """

    def __init__(self, options: Options, spec: dict[str, Any], threads: Sequence[int], physical: int) -> None:
        self._options, self._spec = options, spec
        within = [count for count in sorted(threads) if count <= physical] or [min(threads)]
        self._counts = within[-1:] if options.quick else within[-MOST_TRIED:]
        self._launcher = Launcher(options.timeout_s)
        self._path = ""
        self.cells: list[Cell] = []
        self.trial: CellRecord | None = None

    def choose(self, known: Sequence[CellRecord], keep: Callable[[CellRecord], CellRecord]) -> None:
        """Make its file, try the thread counts, and take the fastest.

        Args:
            known: records of a run that is gone on with.
            keep: takes each new record; also that of a talker which is not measured, with the reason.

        Raises:
            BadInputError: the talker that the user named is none, or does not fit the model.
        """
        if self._options.talker is None and not self._options.no_talker:
            return
        trials = {record.threads: record for record in known if record.phase == "talker_trial"}
        if any(record.gate.status == "skip" for record in trials.values()):
            return
        name, reason = self._which()
        if reason:
            keep(self._left_out(reason))
            return
        with self._telling(f"talker: {name}"):
            made = self._run("talker_prepare", name, self._counts[-1])
        if made.gate.status != "pass":
            if made.gate.status == "fail" and self._options.talker:
                raise BadInputError(made.gate.detail)
            keep(made)
            return
        self._path = str(made.facts["path"])
        for count in self._counts:
            if count not in trials:
                with self._telling(f"talker: llama.cpp's settings on {count} threads are tried once ..."):
                    trials[count] = keep(self._run("talker_trial", self._path, count, frames=TRIAL_STEPS))
        able = [trial for trial in trials.values() if trial.gate.status == "pass"]
        if able:
            self.trial = min(able, key=quick_ms)
            self.cells = [Cell(NAME, self.trial.threads)]

    def need_s(self, rounds: int) -> float:
        """Seconds of the budget that it takes at least; 0 where it is not measured."""
        return 0.0 if self.trial is None else SLACK * rounds * worker_seconds(quick_ms(self.trial), LEAST_FRAMES)

    def timed(self, frames: int, number: int, order: int) -> CellRecord:
        """One worker of a round."""
        return self._run("talker", self._path, self.cells[0].threads, frames=frames, round=number, order=order)

    def _which(self) -> tuple[str, str]:
        """Its file or seeded name, or why there is none."""
        options = self._options
        if options.no_talker:
            return "", "left out (--no-talker)"
        name = options.talker or ""
        if not name and options.model.startswith(synthetic.PREFIX):
            width = int(self._spec["talker_hidden"])
            name = synthetic_talker.name_of_width(width)
            if not name:
                return "", f"{options.model}: there is no seeded talker of width {width} yet; give one with --talker"
            if options.quick and not synthetic_talker.is_made(name):
                return "", f"{name} is not made yet, which --quick has no time for; a sweep without --quick makes it"
        if not name:
            export = f"; python -m cplab export {options.model} --talker talker.gguf writes the checkpoint's own"
            whose = export if Path(options.model).is_dir() else ""
            return "", f"none is known for {options.model}; give one with --talker{whose}"
        return name, ""

    def _run(self, phase: Any, talker: str, threads: int, **fields: Any) -> CellRecord:
        job = Job(
            phase=phase,
            model=self._options.model,
            variant=NAME,
            talker=talker,
            threads=threads,
            cpus=None if phase == "talker_prepare" else machine.pinning(threads),
            **fields,
        )
        record = self._launcher.run(job)
        named = self._options.talker or self._which()[0]
        return record.model_copy(update={"facts": {**record.facts, "talker": named}})

    def _left_out(self, reason: str) -> CellRecord:
        gate = GateOutcome(status="skip", detail=reason)
        return CellRecord(
            variant=NAME, threads=self._counts[-1], model=self._options.model, round=0, order=0, phase="talker_trial",
            gate=gate, reason=reason,
        )  # fmt: skip

    def _telling(self, what: str) -> AbstractContextManager[Any]:
        return Console(stderr=True).status(escape(what))


def talker_of(records: Sequence[CellRecord]) -> tuple[Talker | None, WithoutTalker | None]:
    """What a run's talker came to, or why it has no time; neither where the run never asked for one.

    As with code predictors, a talker that went wrong in one round has no times.
    """
    trials = [record for record in records if record.phase == "talker_trial"]
    rounds = [record for record in records if record.phase == "talker"]
    measured = next(iter(timed_records(rounds, "talker").values()), None)
    if measured:
        return _talker(measured, trials), None
    wrong = next((record for record in rounds if record.gate.status in ("fail", "crash")), None)
    judge = wrong or next((record for record in trials if record.gate.status != "pass"), None)
    if judge is None:
        return None, WithoutTalker(status="skip", reason="the run ended before it was measured") if trials else None
    where = f"round {judge.round + 1}: " if wrong else ""
    status = judge.gate.status
    return None, WithoutTalker(
        status="skip" if status == "pass" else status, reason=f"{where}{judge.reason or judge.gate.detail}"
    )


def _talker(timed: list[CellRecord], trials: Sequence[CellRecord]) -> Talker:
    steps = rounds_of(timed)
    prefills = [record.prefill_ns for record in timed if record.prefill_ns is not None]
    tried = sorted((trial.threads, quick_ms(trial)) for trial in trials if trial.gate.status == "pass")
    told = ", ".join(f"{ms:.3g} ms on {count}" for count, ms in tried)
    facts = timed[0].facts
    return Talker(
        backend=f"{facts.get('backend', '')} {str(facts.get('kind', '')).upper()}".strip(),
        prefill_ms=median(prefills) / 1e6 if prefills else None,
        step_ms=median_of_rounds([[ns / 1e6 for ns in samples] for samples in steps.values()]),
        name=str(facts.get("talker", "")),
        threads=timed[0].threads,
        threads_reason=f"the fastest in a trial: {told}" if len(tried) > 1 else "",
        positions=facts.get("positions"),
        rounds=len(steps),
        steps=sum(len(samples) for samples in steps.values()),
        note=str(facts.get("engine_note", "")),
        disturbed=disturbed_rounds(timed),
    )
