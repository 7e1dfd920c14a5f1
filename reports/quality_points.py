"""Time beside agreement: which variants lie on the front, and which is the best within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.records import CellSummary, Interval, Summary
from bench.records.quality import Estimate, Floor, Quality
from reports.bars import best_cells
from reports.verdict import FRAME_MS, published_shape, talker_interval_ms
from reports.wording import bounds, percent, significant

_WHOLE = Estimate(value=1.0, lo=1.0, hi=1.0)


@dataclass(frozen=True, slots=True)
class Point:
    """A variant: what a frame takes, and the share of codes that are the model's, codes pinned.

    Attributes:
        variant: name.
        threads: at which it is fastest.
        ms: a frame.
        agreement: teacher-forced.
        exact: it has the bits of the model's own arithmetic, so that nothing had to be measured.
        front: no other is both faster and nearer.
    """

    variant: str
    threads: int
    ms: Interval
    agreement: Estimate
    exact: bool
    front: bool = False


def points(found: Quality, summary: Summary) -> list[Point]:
    """Every variant that has a time in the run and an agreement, fastest first.

    What the gate calls exact agrees by its bits. Variants of tier exact with the same arithmetic have the same bits, so
    one's agreement is the others'.
    """
    own = {cell.variant: cell.teacher_forced.agreement for cell in found.cells if cell.teacher_forced is not None}
    of_law = {
        cell.arithmetic: cell.teacher_forced.agreement
        for cell in found.cells
        if cell.tier == "exact" and cell.arithmetic != "f32" and cell.teacher_forced is not None
    }
    placed = []
    for cell in best_cells(summary):
        agreement = _agreement(cell, own, of_law)
        if agreement is not None and cell.cp_ms is not None:
            placed.append(Point(cell.variant, cell.threads, cell.cp_ms, agreement, cell.exact))
    return [_on_front(point, placed) for point in placed]


def best_within(placed: Sequence[Point], budget_ms: float) -> Point | None:
    """The point of the highest agreement, and of equals the fastest, whose whole interval is within a budget."""
    able = [point for point in placed if point.ms.hi <= budget_ms]
    return max(able, key=lambda point: (point.agreement.value, -point.ms.p50), default=None)


def budget_of(summary: Summary) -> tuple[float, str]:
    """What a frame leaves the code predictor, ms, and where that comes from; no model of another shape has one."""
    if not published_shape(summary.model):
        return 0.0, "this model is not of the published shape, so no budget is drawn"
    talker, own = talker_interval_ms(summary)
    whose = "this machine's talker" if own else f"the talker of {summary.reference.name}, another machine,"
    left = FRAME_MS - talker.p50
    return left, f"{FRAME_MS:g} ms less the {significant(talker.p50)} ms that {whose} takes"


def recommendation(placed: Sequence[Point], summary: Summary, floor: Floor | None = None) -> str:
    """Which variant to take within real time's budget, in a sentence or two; none that keeps less than the floor."""
    budget, source = budget_of(summary)
    if budget <= 0:
        return f"No recommendation: {source}."
    best = best_within(placed, budget)
    within = f"within {significant(budget)} ms a frame ({source})"
    if best is None:
        return f"No variant of this run stays {within}."
    if floor is not None and best.agreement.value < floor.least:
        return _nothing_good_enough(placed, best, within, floor)
    enough = "" if floor is None else f" {_asked(floor)} is the least that is recommended."
    return f"{_named(best)} keeps most {within}: {_kept(best)} at {significant(best.ms.p50)} ms.{enough}"


def _nothing_good_enough(placed: Sequence[Point], best: Point, within: str, floor: Floor) -> str:
    told = f"No recommendation: nothing {within} keeps {_asked(floor)}; the most is {_kept(best)}, by {_named(best)}."
    able = [point for point in placed if point.agreement.value >= floor.least]
    if not able:
        return f"{told} Nor does anything slower in this run."
    nearest = min(able, key=lambda point: point.ms.p50)
    return f"{told} The nearest that does is {_named(nearest)} at {significant(nearest.ms.p50)} ms: {_kept(nearest)}."


def _named(point: Point) -> str:
    return f"{point.variant} on {point.threads}"


def _kept(point: Point) -> str:
    return "every code" if point.exact else f"{percent(point.agreement.value)} of the codes"


def _asked(floor: Floor) -> str:
    return f"{percent(floor.least)} of the codes ({floor.source})"


def point_rows(placed: Sequence[Point]) -> list[tuple[str, ...]]:
    """The points as a table's rows."""
    return [
        (
            f"{point.variant} × {point.threads}",
            f"{significant(point.ms.p50)} {bounds(point.ms.lo, point.ms.hi)}",
            "exact" if point.exact else share(point.agreement),
            "on the front" if point.front else "",
        )
        for point in placed
    ]


def share(found: Estimate | None) -> str:
    """A share and its interval as percentages."""
    if found is None:
        return "–"
    return f"{percent(found.value)} [{significant(100 * found.lo)}, {significant(100 * found.hi)}]"


def _agreement(cell: CellSummary, own: dict[str, Estimate], of_law: dict[str, Estimate]) -> Estimate | None:
    if cell.exact:
        return _WHOLE
    if cell.variant in own:
        return own[cell.variant]
    return of_law.get(cell.arithmetic) if cell.tier == "exact" else None


def _on_front(point: Point, placed: Sequence[Point]) -> Point:
    beaten = any(
        other.ms.p50 <= point.ms.p50
        and other.agreement.value >= point.agreement.value
        and (other.ms.p50, other.agreement.value) != (point.ms.p50, point.agreement.value)
        for other in placed
    )
    return Point(point.variant, point.threads, point.ms, point.agreement, point.exact, not beaten)
