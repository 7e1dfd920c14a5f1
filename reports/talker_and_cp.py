"""Talker and code predictor together: what a step of the loop takes here, and what it took on another machine."""

from __future__ import annotations

from dataclasses import dataclass

from bench.records import CellSummary, Interval, Summary
from reports.verdict import FRAME_MS, describe, fastest, published_shape
from reports.wording import NOTHING, milliseconds, one_line, percent, plural, significant

COLUMNS = ("step of the loop", "talker ms", "CP ms", "both, ms", "RTF")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the loop: the talker's, then a frame of the code predictor.

    Attributes:
        label: which code predictor, and whether it is exact.
        talker: milliseconds; None where it was not measured.
        cp: milliseconds.
        exact: whether the code predictor is called exact.
        rtf: time over audio, at 12.5 frames a second; None where it says nothing.
        another_machine: the figures are not of this run.
    """

    label: str
    talker: Interval | None
    cp: Interval
    exact: bool
    rtf: Interval | None
    another_machine: bool = False

    @property
    def both(self) -> Interval | None:
        """Their sum; its bounds are the sums of the bounds, which holds whatever the two have in common."""
        return None if self.talker is None else _added(self.talker, self.cp)

    @property
    def row(self) -> tuple[str, ...]:
        """As a table shows it."""
        figures = (self.talker, self.cp, self.both, self.rtf)
        if self.another_machine:  # printed figures: they have no intervals
            return (self.label, *(NOTHING if one is None else significant(one.p50) for one in figures))
        return (self.label, *(milliseconds(one) for one in figures))


def steps(summary: Summary) -> list[Step]:
    """The fastest exact cell, a faster one that is not exact with its fidelity, and the other machine.

    Of a model that is not of the published shape neither an RTF nor the other machine is shown: they say nothing of it.
    """
    exact, overall = fastest([cell for cell in summary.cells if cell.exact]), fastest(summary.cells)
    cells = [cell for cell in (exact, None if overall is exact else overall) if cell is not None]
    published = published_shape(summary.model)
    talker = summary.talker.step_ms if summary.talker else None
    found = [_step(cell, talker, published) for cell in cells if cell.cp_ms is not None]
    if not published:
        return found
    other = summary.reference
    label = f"{one_line(other.name, 80)} (another machine)"
    rtf = _point(other.rtf)
    return [*found, Step(label, _point(other.talker_ms), _point(other.cp_ms), True, rtf, another_machine=True)]


def talker_sentences(summary: Summary) -> list[str]:
    """What the talker is and how it was measured, or why it was not."""
    talker = summary.talker
    if talker is None:
        without = summary.without_talker
        reason = one_line(without.reason, 300) if without else "this run did not ask for one"
        status = {"fail": "failed", "crash": "crashed"}.get(without.status if without else "skip", "was not measured")
        return [f"The talker {status}: {reason}."]
    threads = "" if talker.threads is None else f" on {plural(talker.threads, 'thread')}"
    why = f" ({one_line(talker.threads_reason, 200)})" if talker.threads_reason else ""
    first = f"Talker: {one_line(talker.name or 'of this run', 120)} in {one_line(talker.backend, 80)}{threads}{why}, "
    first += f"{milliseconds(talker.step_ms)} ms a step"
    if talker.rounds:
        first += f" over {plural(talker.rounds, 'round')} and {plural(talker.steps, 'step')}, in the cells' own rounds"
    if talker.prefill_ms is not None:
        positions = "" if talker.positions is None else f" of {talker.positions} positions"
        first += f"; a prefill{positions} takes {significant(talker.prefill_ms)} ms"
    told = [f"{first}."]
    if talker.note:
        told.append(f"{one_line(talker.note, 400)}.")
    told += [f"The talker was disturbed: {one_line(line, 200)}." for line in talker.disturbed[:3]]
    return told


def talker_lines(summary: Summary) -> list[str]:
    """For the terminal: the talker, and a line for each step that has one."""
    if summary.talker is None and summary.without_talker is None:
        return []
    lines = talker_sentences(summary)[:1]
    shown = [step for step in steps(summary) if summary.talker is not None]
    return lines + [_line(step) for step in shown]


def _line(step: Step) -> str:
    _, talker, cp, both, rtf = step.row
    told = f"{step.label}: talker {talker} + CP {cp} = {both} ms a step"
    return told if rtf == NOTHING else f"{told}, RTF {rtf}"


def _step(cell: CellSummary, talker: Interval | None, published: bool) -> Step:
    assert cell.cp_ms is not None
    label = f"{describe(cell)}, exact" if cell.exact else f"{describe(cell)}, not exact{_fidelity(cell)}"
    both = _added(talker, cell.cp_ms) if talker and published else None
    rtf = None if both is None else _scaled(both, 1 / FRAME_MS)
    return Step(label, talker, cell.cp_ms, cell.exact, rtf)


def _fidelity(cell: CellSummary) -> str:
    forced = cell.fidelity.teacher_forced
    return "" if forced is None else f" (fidelity {percent(forced)} teacher-forced)"


def _point(value: float) -> Interval:
    return Interval(p50=value, lo=value, hi=value, min=value)


def _added(a: Interval, b: Interval) -> Interval:
    return Interval(p50=a.p50 + b.p50, lo=a.lo + b.lo, hi=a.hi + b.hi, min=a.min + b.min)


def _scaled(one: Interval, by: float) -> Interval:
    return Interval(p50=one.p50 * by, lo=one.lo * by, hi=one.hi * by, min=one.min * by)
