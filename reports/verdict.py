"""The sentences at the top of a report: what was fastest, and whether it is fast enough to speak.

"Exact" and "fidelity" are never mixed: the first sentence is about variants that are called exact, a second one
about a faster variant that is not. Real time means that talker and code predictor together take no longer than
the 80 ms of audio that a frame holds.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from bench.records import CellSummary, Interval, ModelFacts, Summary
from reports.wording import bounds, one_line, percent, plural, significant, times

FRAME_MS = 80.0
"""Audio in one frame, milliseconds: 12.5 frames a second."""

PUBLISHED_SHAPE = {"layers": 5, "hidden": 1024, "groups": 16}
"""The dimensions that every published code predictor has; another shape says nothing of real time."""

Answer = Literal["yes", "no", "close", "unknown"]


@dataclass(frozen=True, slots=True)
class RealTime:
    """Talker + code predictor against the frame's 80 ms. ``answer`` is ``close`` where the interval holds 80."""

    answer: Answer
    sentence: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything said before the first table.

    Attributes:
        headline: one sentence on the fastest exact variant.
        real_time: the answer that the headline gives, for the badge.
        second: one sentence on a faster variant that is not exact; empty where there is none.
        notes: what a reader must know before believing the figures, most important first.
    """

    headline: str
    real_time: Answer
    second: str = ""
    notes: list[str] = field(default_factory=list)


def verdict(summary: Summary) -> str:
    """The headline of the run, one sentence."""
    return judge(summary).headline


def judge(summary: Summary) -> Verdict:
    """All sentences of the run."""
    exact = fastest([cell for cell in summary.cells if cell.exact])
    overall = fastest(summary.cells)
    second = "" if overall is None or overall is exact else _second_sentence(overall, exact, summary)
    if exact is None:
        return Verdict(_nothing_exact(summary.cells), "unknown", second, _notes(summary, overall))
    real_time = judge_real_time(exact, summary)
    headline = (
        f"Fastest exact: {describe(exact)}, {_milliseconds_a_frame(exact)}, {_against_baseline(exact, summary)}; "
        f"{real_time.sentence}."
    )
    return Verdict(headline, real_time.answer, second, _notes(summary, exact))


def fastest(cells: list[CellSummary]) -> CellSummary | None:
    """The cell with the least median among those that passed and were timed."""
    timed = [(cell.cp_ms.p50, cell) for cell in cells if cell.gate == "pass" and cell.cp_ms is not None]
    return min(timed, key=lambda pair: pair[0])[1] if timed else None


def describe(cell: CellSummary) -> str:
    """``kv_bf16 on 2 threads``."""
    return f"{one_line(cell.variant, 80)} on {plural(cell.threads, 'thread')}"


def published_shape(model: ModelFacts) -> bool:
    """Whether the model has the published dimensions, as far as its spec says."""
    return all(model.spec.get(name, value) == value for name, value in PUBLISHED_SHAPE.items())


def talker_interval_ms(summary: Summary) -> tuple[Interval, bool]:
    """The talker's time a step, and whether it was measured in this run (else the reference machine's)."""
    if summary.talker is not None:
        return summary.talker.step_ms, True
    talker_ms = summary.reference.talker_ms
    return Interval(p50=talker_ms, lo=talker_ms, hi=talker_ms, min=talker_ms), False


def judge_real_time(cell: CellSummary, summary: Summary) -> RealTime:
    """Whether talker + ``cell`` fit into the 80 ms of a frame."""
    if cell.cp_ms is None:
        return RealTime("unknown", "real time cannot be judged without a time")
    if not published_shape(summary.model):
        spec = summary.model.spec
        shape = f"{spec.get('layers', '?')} layers of width {spec.get('hidden', '?')}"
        return RealTime("unknown", f"real time is not judged, as this model ({shape}) is not of the published shape")
    talker, own = talker_interval_ms(summary)
    total = cell.cp_ms.p50 + talker.p50
    low, high = cell.cp_ms.lo + talker.lo, cell.cp_ms.hi + talker.hi
    if own:
        start = f"with this machine's talker step of {significant(talker.p50)} ms"
    else:
        start = (
            f"with another machine's talker step of {significant(talker.p50)} ms ({summary.reference.name}), "
            "as none was measured here"
        )
    of_frame = f"{start}, talker + CP take {significant(total)} ms of a frame's {FRAME_MS:g} ms"
    if high <= FRAME_MS:
        return RealTime("yes", f"{of_frame}: real time")
    if low > FRAME_MS:
        return RealTime("no", f"{of_frame}: not real time")
    return RealTime("close", f"{of_frame}: too close to call, as the interval {bounds(low, high)} holds the limit")


def _milliseconds_a_frame(cell: CellSummary) -> str:
    if cell.cp_ms is None:
        return "not timed"
    return f"{significant(cell.cp_ms.p50)} ms a frame {bounds(cell.cp_ms.lo, cell.cp_ms.hi)}"


def _against_baseline(cell: CellSummary, summary: Summary) -> str:
    if cell.speedup_vs_baseline is None:
        return (
            f"the baseline {summary.baseline} itself"
            if cell.variant == summary.baseline
            else (f"with no ratio to the baseline {summary.baseline}, which has no time in this run")
        )
    if cell.variant == summary.baseline and cell.speedup_vs_baseline.ratio == 1:
        return f"the baseline {summary.baseline} itself"
    return f"{times(cell.speedup_vs_baseline)} the speed of {summary.baseline}"


def _nothing_exact(cells: list[CellSummary]) -> str:
    if not cells:
        return "Nothing was measured: this run has no cells."
    counts = Counter[str](cell.gate for cell in cells)
    if any(cell.exact and cell.gate == "pass" for cell in cells):
        return "No exact variant was timed in this run, so there is no fastest exact variant."
    passed = (
        f"{counts['pass']} of {plural(len(cells), 'cell')} passed, not exact" if counts["pass"] else "no cell passed"
    )
    return f"No exact variant passed its gate in this run, so there is no fastest exact variant ({passed})."


def _second_sentence(cell: CellSummary, exact: CellSummary | None, summary: Summary) -> str:
    lead = "Faster, but not exact" if exact is not None else "Fastest of those that passed, and not exact"
    if cell.lossy_weights:
        why = f"its packing changed {plural(cell.lossy_weights, 'weight')}"
    elif cell.arithmetic != "f32":
        why = f"its arithmetic is {cell.arithmetic}, which makes it another model"
    else:
        why = f"its gate asks for tier {cell.tier}, not for equal bits"
    return f"{lead}: {describe(cell)}, {_milliseconds_a_frame(cell)}; {why}; {_fidelity(cell)}."


def _fidelity(cell: CellSummary) -> str:
    forced, free = cell.fidelity.teacher_forced, cell.fidelity.free_running
    if forced is None and free is None:
        return "its fidelity to the f32 codes was not measured"
    parts = [
        f"{percent(share)} {name}"
        for share, name in ((forced, "teacher-forced"), (free, "free-running"))
        if share is not None
    ]
    return f"fidelity to the f32 codes {' and '.join(parts)}"


def _notes(summary: Summary, winner: CellSummary | None) -> list[str]:
    notes = []
    if summary.model.synthetic:
        notes.append(
            f"The weights are seeded ({summary.model.name}): the times are real, and the codes are not speech."
        )
    if summary.run.interrupted:
        measured = sum(cell.cp_ms is not None for cell in summary.cells)
        notes.append(
            f"The run was interrupted: {measured} of {plural(len(summary.cells), 'cell')} had been timed by then."
        )
    if summary.without_talker is not None and summary.without_talker.status in ("fail", "crash"):
        did = {"fail": "failed", "crash": "crashed"}[summary.without_talker.status]
        notes.append(f"The talker {did}: {one_line(summary.without_talker.reason, 300)}.")
    counts = Counter[str](cell.gate for cell in summary.cells)
    wrong = [
        f"{counts[status]} {word}"
        for status, word in (("fail", "failed its gate"), ("crash", "crashed"))
        if counts[status]
    ]
    if wrong:
        notes.append(f"Of {plural(len(summary.cells), 'cell')}, {' and '.join(wrong)}; the reasons stand in the table.")
    if winner is not None and winner.oversubscribed:
        notes.append(f"The fastest cell, {describe(winner)}, has more threads than the CPUs that it may use.")
    if winner is not None and winner.roof_suspect:
        notes.append(f"The fastest cell, {describe(winner)}, came out above its roof twice: its time is suspect.")
    return notes
