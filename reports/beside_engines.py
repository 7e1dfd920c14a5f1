"""Beside other engines: how much faster the lab's own cells are, and how much faster memory would let them be."""

from __future__ import annotations

from dataclasses import dataclass

from bench.records import Summary
from reports.bar_drawing import Chart
from reports.beside_engines_chart import MOST_PAIRS, Pair, limit_chart
from reports.figure_table import FigureTable, Heading
from reports.plain_speeds import speed_of, told_speed
from reports.wording import NOTHING, one_line, percent, plural, significant, times

TITLE = "Beside other engines"
EXPLANATION = (
    "Each cell of another engine beside the lab's own on as many threads, round by round in this run: the variant of "
    "the same name or format, then the fastest exact one. A speed above 1 says that the lab's is faster.",
    "The limit is the speed if the lab's cell took its roof's time alone, in which its bytes are read and nothing else "
    "is done: the engine's median over that time. With the same bytes, an engine that reads at half the roof can be "
    "beaten by a factor of 2 at most, and one at x % by 100/x, whatever the kernel; more takes fewer bytes (kv_bf12, "
    "q4_0), not a faster kernel. The speed reached is about the limit times the lab's share of the roof. Where that is "
    "small, the cell waits for something else: for arithmetic, where it runs earlier tokens again.",
)
_SAME_BYTES = 0.01
"""Two cells whose bytes differ by no more than this share read as many."""


@dataclass(frozen=True, slots=True)
class BesideEngines:
    """The section, put into words, rows and a chart.

    Attributes:
        words: what is compared, what the limit is, and which pair has least room.
        caption: of the chart.
    """

    words: list[str]
    caption: str
    chart: Chart
    table: FigureTable


def beside_engines(summary: Summary) -> BesideEngines | None:
    """The section of a run; None where it has no pair of timed cells."""
    pairs = _pairs(summary)
    if not pairs:
        return None
    headline = _least_room(pairs)
    return BesideEngines(
        words=[*EXPLANATION, *([headline] if headline else [])],
        caption=_caption(pairs),
        chart=limit_chart(pairs),
        table=_table(pairs),
    )


def _pairs(summary: Summary) -> list[Pair]:
    cells = {f"{cell.variant} x {cell.threads}": cell for cell in summary.cells if cell.cp_ms is not None}
    return [
        Pair(cells[found.a], cells[found.b], found)
        for found in summary.engines
        if found.a in cells and found.b in cells
    ]


def _table(pairs: list[Pair]) -> FigureTable:
    headings = (
        Heading("engine's cell", "variant and threads", is_text=True, names_row=True),
        Heading("the lab's", "the variant that it is held beside, on as many threads", is_text=True),
        Heading("exact (fidelity)", "of the lab's: whether it is; else its codes that are the model's", is_text=True),
        Heading("engine's ms a frame", "median over rounds"),
        Heading("the lab's ms a frame", "median over rounds"),
        Heading("speed over the engine [95\N{NO-BREAK SPACE}%]", "of the lab's, paired by round; above 1 is faster"),
        Heading("limit", "the same speed, if the lab's took its roof's time alone"),
        Heading("of roof", "of the lab's: share of the best read-only speed over the same bytes"),
        Heading("of its bytes", "what the lab's reads a frame, as a share of what the engine reads"),
        Heading("engine's GB/s", "bytes a frame over the median"),
        Heading("the lab's GB/s", "bytes a frame over the median"),
    )
    return FigureTable(headings, [_row(pair) for pair in pairs])


def _row(pair: Pair) -> list[str]:
    theirs, ours = pair.theirs, pair.ours
    return [
        f"{one_line(theirs.variant, 80)} × {theirs.threads}{' *' if pair.is_oversubscribed else ''}",
        one_line(ours.variant, 80),
        "yes" if ours.exact else f"no ({percent(ours.fidelity.teacher_forced)})",
        significant(theirs.cp_ms.p50 if theirs.cp_ms else None),
        significant(ours.cp_ms.p50 if ours.cp_ms else None),
        told_speed(pair.found),
        NOTHING if pair.limit is None else f"{significant(pair.limit)}×",
        percent(ours.roof_fraction) + (" (suspect)" if ours.roof_suspect else ""),
        percent(pair.bytes_share),
        significant(theirs.gbps),
        significant(ours.gbps),
    ]


def _least_room(pairs: list[Pair]) -> str:
    """Of the pairs that read as many bytes, the one whose engine is nearest to the roof, and what was reached."""
    same = [
        (pair.limit, pair)
        for pair in pairs
        if pair.limit is not None
        and pair.limit > 1
        and not pair.ours.roof_suspect
        and pair.bytes_share is not None
        and abs(pair.bytes_share - 1) <= _SAME_BYTES
    ]
    if not same:
        return ""
    limit, pair = min(same, key=lambda entry: entry[0])
    engine, own = one_line(pair.theirs.variant, 80), one_line(pair.ours.variant, 80)
    return (
        f"Least room here: {engine} on {plural(pair.theirs.threads, 'thread')} reads its bytes at {percent(1 / limit)} "
        f"of the roof, so that what reads as many has at most {significant(limit)}× its speed; {own} has "
        f"{times(speed_of(pair.found))}."
    )


def _caption(pairs: list[Pair]) -> str:
    shown = f" The first {MOST_PAIRS} pairs; the table has all." if len(pairs) > MOST_PAIRS else ""
    return (
        "Speed of the lab's cell over the engine's, with its 95 % interval by rounds; the upright mark is the limit of "
        f"its own bytes.{shown}"
    )
