"""Bytes a frame, and the same bits: the exact variants of one run, by what each reads for one and the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.records import PLAIN_VARIANTS, CellRecord, CellSummary, Speculation, Summary, draft_counts
from reports.bar_drawing import Chart
from reports.drafts import Drafts, drafts_of
from reports.figure_table import FigureTable, Heading
from reports.plain_speeds import speed_over
from reports.same_bits_chart import bytes_chart, unit_of
from reports.same_bits_words import reasons
from reports.verdict import describe, fastest
from reports.wording import NOTHING, milliseconds, one_line, percent, plural, significant

TITLE = "Bytes a frame, and the same bits"
_AGAIN = 1.5
"""With so many times the multiply-adds of a cached frame a cell runs earlier tokens again, and waits for these."""


@dataclass(frozen=True, slots=True)
class SameBits:
    """The section, put into words, rows and a chart.

    Attributes:
        intro: what is the same and what is not; "" where the run has no two exact variants to lay beside each other.
        headline: what the fewest milliseconds are of.
        caption: of the chart.
        why: why the bits are equal, a reason for each way in which the variants differ.
        drafts: what became of drafts, and the curve over acceptance; None where nothing speculates.
    """

    intro: str
    headline: str
    caption: str
    chart: Chart | None
    table: FigureTable | None
    why: list[str]
    drafts: Drafts | None


def same_bits(
    summary: Summary, records: Sequence[CellRecord], speculation: Speculation | None = None
) -> SameBits | None:
    """The section of a run; None where it has neither exact variants that differ in bytes, nor drafts."""
    speculative = _speculative(summary, records)
    team = _team(_exact(summary))
    drafts = drafts_of(summary, speculative, speculation)
    if not team and drafts is None:
        return None
    if not team:
        return SameBits("", "", "", None, None, reasons([], guesses=True), drafts)
    threads = team[0].threads
    roof = _roof(team)
    return SameBits(
        intro=(
            "Every variant here gives the same bits. They differ in how many bytes a frame reads, and a frame takes at "
            "least as long as reading them does."
        ),
        headline=_headline(team, summary),
        caption=_caption(threads, roof),
        chart=bytes_chart(team, roof),
        table=_table(summary, threads, speculative),
        why=reasons(team, guesses=bool(speculative)),
        drafts=drafts,
    )


def _exact(summary: Summary) -> list[CellSummary]:
    """Cells that are called exact, with a time and bytes, and that run no token twice."""
    timed = [cell for cell in summary.cells if cell.exact and cell.cp_ms is not None and cell.bytes_per_frame]
    known = [cell.macs_per_frame for cell in timed if cell.macs_per_frame]
    least = min(known, default=0)
    return [cell for cell in timed if not cell.macs_per_frame or cell.macs_per_frame <= _AGAIN * least]


def _team(exact: Sequence[CellSummary]) -> list[CellSummary]:
    """Those of the thread count that has the fastest; none where that has no two with other bytes."""
    counts = {cell.threads for cell in exact}
    teams = [[cell for cell in exact if cell.threads == count] for count in counts]
    teams = [team for team in teams if len({cell.bytes_per_frame for cell in team}) > 1]
    return min(teams, key=lambda team: min(cell.cp_ms.p50 for cell in team if cell.cp_ms), default=[])


def _speculative(summary: Summary, records: Sequence[CellRecord]) -> dict[tuple[str, int], list[CellRecord]]:
    """Timed records of the cells that guess codes, by name and thread count."""
    found: dict[tuple[str, int], list[CellRecord]] = {}
    timed = {(cell.variant, cell.threads) for cell in summary.cells if cell.cp_ms is not None}
    for record in records:
        if record.phase == "timed" and record.gate.status == "pass" and not record.twin_of:
            found.setdefault((record.variant, record.threads), []).append(record)
    return {key: own for key, own in found.items() if key in timed and draft_counts(own) is not None}


def _table(summary: Summary, threads: int, speculative: dict[tuple[str, int], list[CellRecord]]) -> FigureTable:
    """Cells of the chart's team first, then of the others; in each, those that read most first."""
    cells = sorted(
        _exact(summary), key=lambda cell: (cell.threads != threads, cell.threads, -(cell.bytes_per_frame or 0))
    )
    unit, size = unit_of(max(cell.bytes_per_frame or 0 for cell in cells))
    timed = {cell.variant for cell in cells}
    references = [name for name in PLAIN_VARIANTS if name in timed and summary.comparisons]
    hint = "of the same threads, paired by round; above 1 is faster"
    headings = (
        Heading("cell", "variant and threads", is_text=True, names_row=True),
        Heading("weights", "the format that holds them", is_text=True),
        Heading("passes a frame", "over the layers; fewer where drafts hold"),
        Heading(f"{unit} a frame", "weights read, as the variant's own streams say"),
        Heading("ms a frame [95\N{NO-BREAK SPACE}%]", "median over rounds and its interval"),
        Heading("GB/s", "bytes a frame over the median"),
        Heading("of roof", "share of the best read-only speed over the same bytes"),
        *(Heading(f"speed over {name}", hint) for name in references),
    )
    return FigureTable(headings, [_row(summary, cell, size, references, speculative) for cell in cells])


def _row(
    summary: Summary, cell: CellSummary, size: float, references: list[str],
    speculative: dict[tuple[str, int], list[CellRecord]],
) -> list[str]:  # fmt: skip
    counts = draft_counts(speculative.get((cell.variant, cell.threads), []))
    passes = counts.passes_per_frame if counts else cell.passes_per_frame
    return [
        f"{one_line(cell.variant, 80)} × {cell.threads}{' *' if cell.oversubscribed else ''}",
        one_line(cell.format, 20),
        NOTHING if passes is None else f"{passes:.3g}",
        significant((cell.bytes_per_frame or 0) / size),
        milliseconds(cell.cp_ms),
        significant(cell.gbps),
        percent(cell.roof_fraction) + (" (suspect)" if cell.roof_suspect else ""),
        *(speed_over(summary, name, cell) for name in references),
    ]


def _headline(team: Sequence[CellSummary], summary: Summary) -> str:
    best = fastest(list(team))
    if best is None or best.cp_ms is None:
        return ""
    told = [f"Fastest here: {describe(best)}, {significant(best.cp_ms.p50)} ms a frame"]
    for name in PLAIN_VARIANTS:
        plain = next((cell for cell in team if cell.variant == name), None)
        if plain is None or plain is best or not plain.bytes_per_frame or not best.bytes_per_frame:
            continue
        speed = speed_over(summary, name, best)
        share = percent(best.bytes_per_frame / plain.bytes_per_frame)
        told.append(f"{share} of the bytes of {name}" + ("" if speed == NOTHING else f", at a speed of {speed}"))
    return "; ".join(told) + "."


def _roof(team: Sequence[CellSummary]) -> float | None:
    """The fastest that weights of any of these cells were read, GB/s; what is smaller may come out of a cache."""
    speeds = [cell.bytes_per_frame / cell.roof_ms / 1e6 for cell in team if cell.bytes_per_frame and cell.roof_ms]
    return max(speeds, default=None)


def _caption(threads: int, roof: float | None) -> str:
    start = f"Exact variants on {plural(threads, 'thread')}: the fewer bytes a frame reads, the further left it stands."
    if roof is None:
        return f"{start} This run has no roof to draw."
    return (
        f"{start} The line is the time that reading takes at {significant(roof)} GB/s, the fastest that this run read "
        f"any of their weights with {plural(threads, 'thread')}; what is above it waits for something else too."
    )
