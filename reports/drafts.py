"""What became of a run's drafts: codes a pass and shares that held, by codebook; and speed over acceptance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.ticker import FixedLocator, MaxNLocator

from bench.records import CellRecord, CellSummary, DraftCounts, Speculation, Summary, draft_counts
from reports.bar_drawing import Chart
from reports.figure_table import FigureTable, Heading
from reports.plain_speeds import speed_over
from reports.small_charts import HEIGHT, WIDTH, SmallChart
from reports.speculation_curve import curve_chart, curve_table, curve_words
from reports.svg import EXACT, FAINT, OTHER, drawing, inline, new_axes
from reports.wording import NOTHING, one_line, percent, plural, significant

HEADINGS = (
    Heading("cell", "variant and threads", is_text=True, names_row=True),
    Heading("frames", "of all timed workers, those in which draft lengths are learnt among them"),
    Heading("codes a pass", "over all passes, each frame's first among them"),
    Heading("passes a frame", "over the layers"),
    Heading("drafts a frame", "that were compared with the code that came out"),
    Heading("held", "share of those that were right"),
    Heading("speed over plain", "over the plain decoder of the same format and threads, paired by round"),
)
"""Columns of the table of drafts."""


@dataclass(frozen=True, slots=True)
class Drafts:
    """What became of drafts.

    Attributes:
        words: how to read the table, and what it does not say.
        charts: shares that held by codebook, one for each cell of which any draft was compared.
        curve: speed over the share that holds, where ``bench speculation`` measured it; else None.
        curve_words: what the curve is of, or how to have one.
    """

    words: list[str]
    table: FigureTable
    charts: list[SmallChart]
    curve: Chart | None
    curve_table: FigureTable | None
    curve_words: list[str]


def drafts_of(
    summary: Summary,
    speculative: Mapping[tuple[str, int], Sequence[CellRecord]],
    speculation: Speculation | None,
) -> Drafts | None:
    """Table, charts and curve; None where no cell speculates.

    Args:
        summary: of the run.
        speculative: timed records of cells that guess codes, by name and thread count.
        speculation: curves that lie in the run's folder.
    """
    counted = [
        (cell, counts)
        for cell in sorted(summary.cells, key=lambda cell: cell.cp_ms.p50 if cell.cp_ms else 0.0)
        if (counts := draft_counts(speculative.get((cell.variant, cell.threads), []))) is not None
    ]
    if not counted:
        return None
    curves, words = curve_words(summary, speculation, counted[0][0])
    return Drafts(
        words=_words(summary, {counts.drafter for _, counts in counted}),
        table=FigureTable(HEADINGS, [_row(summary, cell, counts) for cell, counts in counted]),
        charts=_charts(counted),
        curve=curve_chart(curves),
        curve_table=curve_table(curves) if curves else None,
        curve_words=words,
    )


def _words(summary: Summary, drafters: set[str]) -> list[str]:
    found = ["Each worker learns anew how many drafts are worth their price; frames in which it does so count too."]
    copies = sorted(drafters - {"heads"})
    if copies:
        found.append(
            f"Where the model in {' or '.join(one_line(name, 20) for name in copies)} drafts, drafts hold as often as "
            "rounding leaves the model's own code, also of seeded weights; each costs a pass of that model."
        )
    if not summary.model.synthetic:
        return [*found, "These are this checkpoint's own drafts, on the golden's frames."]
    if "heads" not in drafters:
        return found
    made = "predictable" in summary.model.name
    learnt = (
        "These weights are seeded, and made so that many codes can be told ahead: that says nothing of a checkpoint."
        if made
        else "These weights are seeded and have learnt nothing that a draft could use, so that hardly any holds."
    )
    return [
        *found,
        f"{learnt} What a trained checkpoint accepts is for its owner to measure: python -m cplab drafter --model DIR "
        "--golden FILE fits what drafts add to the hidden state, python -m bench speculation --model DIR times them.",
    ]


def _row(summary: Summary, cell: CellSummary, counts: DraftCounts) -> list[str]:
    asked, held = sum(counts.asked), sum(counts.held)
    return [
        f"{one_line(cell.variant, 80)} × {cell.threads}",
        str(counts.frames),
        significant(counts.codes_per_pass),
        significant(counts.passes_per_frame),
        significant(asked / counts.frames),
        percent(held / asked) if asked else NOTHING,
        speed_over(summary, f"kv_{cell.format}", cell),
    ]


def _charts(counted: Sequence[tuple[CellSummary, DraftCounts]]) -> list[SmallChart]:
    shown = [(cell, counts) for cell, counts in counted if sum(counts.asked)]
    with drawing():
        return [_chart(number, cell, counts) for number, (cell, counts) in enumerate(shown)]


def _chart(number: int, cell: CellSummary, counts: DraftCounts) -> SmallChart:
    """Bars from the first codebook on that is ever guessed; one of which no draft was compared has none."""
    figure, axes = new_axes(WIDTH, HEIGHT, 44, 14, 10, 44)
    last = len(counts.asked)
    axes.set_xlim(counts.first + 0.4, last + 0.6)
    axes.set_ylim(0, 100)
    compared = [(at + 1, 100 * share) for at, share in enumerate(counts.acceptance) if share is not None]
    axes.bar([at for at, _ in compared], [100] * len(compared), width=0.8, color=FAINT, linewidth=0)
    axes.bar(
        [at for at, _ in compared], [share for _, share in compared], width=0.8, linewidth=0,
        color=EXACT if cell.exact else OTHER,
    )  # fmt: skip
    axes.xaxis.set_major_locator(FixedLocator(range(counts.first + 1, last + 1, 1 if last < 8 else 2)))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.tick_params(labelsize=11, length=0, pad=5)
    axes.set_xlabel("codebook")
    axes.set_ylabel("held, %")
    heading = f"{one_line(cell.variant)} × {cell.threads}"
    asked, held = sum(counts.asked), sum(counts.held)
    figures = f"{percent(held / asked)} of {plural(asked, 'draft')} held"
    told = "; ".join(f"CB{at}: {significant(share)} %" for at, share in compared)
    svg = inline(figure, f"drafts-{number}", f"{heading}: share of drafts that held, by codebook", told)
    return SmallChart(heading, figures, svg)
