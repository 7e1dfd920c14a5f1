"""Frames of several utterances at once: what a frame takes and how many come a second, as rows and as small charts."""

from __future__ import annotations

from itertools import groupby

from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from bench.records import Rate, StreamPoint, Streams
from reports.small_charts import HEIGHT, WIDTH, SmallChart
from reports.svg import BUDGET, EXACT, OTHER, drawing, inline, new_axes
from reports.verdict import FRAME_MS
from reports.wording import NOTHING, bounds, milliseconds, one_line, plural, significant, times

COLUMNS = ("cell", "frames at once", "ms a frame", "frames a second", "beside one at a time", "ms a call", "gate")
MOST_NAMED = 4
"""Variants that a note names; of more their number."""
EXPLANATION = (
    "A call gives each of several utterances its frame, from one pass over the weights, with the same bits as one at a "
    "time. A frame's time is the call's, divided; each utterance waits for the whole call, which for real time must "
    f"take less than {FRAME_MS:g} ms, talker included. Frames a second are of all utterances together."
)


def stream_rows(streams: Streams | None) -> list[tuple[str, ...]]:
    """A row of `COLUMNS` for each cell and number of frames at once."""
    return [_row(point) for point in streams.points] if streams else []


def stream_notes(streams: Streams | None) -> list[str]:
    """What went wrong, calls that have a frame twice, and what was measured while the machine was disturbed."""
    wrong, disturbed = [], []
    for point in streams.points if streams else []:
        name = f"{_cell(point)}, {plural(point.batch, 'frame')} at once"
        if point.gate in ("fail", "crash"):
            wrong.append(f"{name}: {point.gate}: {one_line(point.detail, 300)}")
        if point.disturbed and point.batch > 1:
            disturbed.append(f"{name}: disturbed: {one_line(point.disturbed[0], 200)}")
    return [*wrong, *_repeating(streams.points if streams else []), *disturbed]


def _repeating(points: list[StreamPoint]) -> list[str]:
    """A line for each golden that has fewer frames than calls, with the calls that are so large."""
    large: dict[int, list[StreamPoint]] = {}
    for point in points:
        if point.golden_frames and point.batch > point.golden_frames:
            large.setdefault(point.golden_frames, []).append(point)
    notes = []
    for frames, repeating in sorted(large.items()):
        calls = " and of ".join(str(batch) for batch in sorted({point.batch for point in repeating}))
        variants = list(dict.fromkeys(one_line(point.variant, 80) for point in repeating))
        whose = ", ".join(variants) if len(variants) <= MOST_NAMED else plural(len(variants), "variant")
        notes.append(
            f"The golden has {plural(frames, 'frame')} ({whose}): a call of {calls} has some of them more than once, "
            "so that its utterances are not all different."
        )
    return notes


def stream_charts(streams: Streams | None) -> list[SmallChart]:
    """Frames a second by frames at once, a chart for each cell that was timed with several, all with the same axes."""
    cells = []
    for _, points in groupby(streams.points if streams else [], key=_cell):
        timed = [point for point in points if point.frames_per_s is not None]
        if len(timed) > 1:
            cells.append(timed)
    if not cells:
        return []
    highest = max(point.frames_per_s.hi for timed in cells for point in timed if point.frames_per_s)
    batches = sorted({point.batch for timed in cells for point in timed})
    with drawing():
        return [_chart(number, timed, batches, highest) for number, timed in enumerate(cells)]


def _chart(number: int, timed: list[StreamPoint], batches: list[int], highest: float) -> SmallChart:
    figure, axes = new_axes(WIDTH, HEIGHT, 60, 14, 10, 44)
    axes.set_xscale("log", base=2)
    axes.set_xlim(batches[0] / 1.15, batches[-1] * 1.15)
    axes.set_ylim(0, 1.08 * highest)
    x = [point.batch for point in timed]
    rates = [point.frames_per_s for point in timed if point.frames_per_s]
    ideal = [batch / x[0] * rates[0].p50 for batch in batches]
    axes.plot(batches, ideal, color=BUDGET, linewidth=1.5, linestyle=(0, (5, 3)))
    color, marker = (EXACT, "o") if timed[0].exact else (OTHER, "s")
    error = [[rate.p50 - rate.lo for rate in rates], [rate.hi - rate.p50 for rate in rates]]
    y = [rate.p50 for rate in rates]
    axes.errorbar(x, y, yerr=error, color=color, linewidth=2, marker=marker, markersize=6, capsize=3)
    axes.xaxis.set_major_locator(FixedLocator(batches))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10]))
    axes.grid(visible=True, axis="y")
    axes.tick_params(labelsize=11, length=0, pad=5)
    axes.set_xlabel("frames at once")
    axes.set_ylabel("frames a second")
    figures = ", ".join(f"{significant(rate)} at {batch}" for batch, rate in zip(x, y, strict=True))
    heading = _cell(timed[0])
    svg = inline(figure, f"streams-{number}", f"{heading}: frames a second by frames at once", figures)
    return SmallChart(heading, f"frames a second: {figures}", svg)


def _row(point: StreamPoint) -> tuple[str, ...]:
    figures = (milliseconds(point.frame_ms), _rate(point.frames_per_s), times(point.gain), milliseconds(point.call_ms))
    return (_cell(point), str(point.batch), *figures, point.gate)


def _rate(rate: Rate | None) -> str:
    return NOTHING if rate is None else f"{significant(rate.p50)} {bounds(rate.lo, rate.hi)}"


def _cell(point: StreamPoint) -> str:
    return f"{one_line(point.variant, 80)} × {point.threads}"
