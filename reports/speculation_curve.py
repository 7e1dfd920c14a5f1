"""Speed of speculation over the share of drafts that hold: curves that ``bench speculation`` left in a run's folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, MultipleLocator

from bench.records import CellSummary, CurvePoint, Speculation, SpeculationCurve, Summary
from reports.bar_drawing import Chart
from reports.figure_table import FigureTable, Heading
from reports.interval_marks import interval_mark
from reports.svg import EXACT, INK, MUTED, PAPER, PARTS, drawing, inline, new_axes
from reports.wording import milliseconds, one_line, percent, plural, significant, times

HEADINGS = (
    Heading("drafts", "whose, and the share of right ones where that was set", is_text=True, names_row=True),
    Heading("curve", "variant and threads", is_text=True),
    Heading("held", "share of the compared drafts that were right; – where no draft was asked for"),
    Heading("codes a pass"),
    Heading("passes a frame"),
    Heading("ms a frame [95\N{NO-BREAK SPACE}%]"),
    Heading("speed over plain", "over the plain decoder of the same format in the same rounds"),
)
_COLOURS = (EXACT, PARTS["head"], PARTS["gate_up"], PARTS["attention"], PARTS["quantise"], PARTS["norm"])


def curve_words(
    summary: Summary, speculation: Speculation | None, cell: CellSummary
) -> tuple[list[SpeculationCurve], list[str]]:
    """The curves that belong to a run, which are of its weights and its CPU, and what to know of them.

    Args:
        summary: of the run.
        speculation: what lies in its folder.
        cell: one that speculates, for the command that would measure a curve.
    """
    cpu = summary.machine.get("cpu")
    model = str(cpu.get("model") or "") if isinstance(cpu, dict) else ""
    kept: list[SpeculationCurve] = []
    words: list[str] = []
    for curve in speculation.curves if speculation else []:
        name = f"{one_line(curve.variant, 80)} × {curve.threads}"
        if curve.digest != summary.model.digest:
            words.append(f"The curve of {name} is of other weights ({one_line(curve.model, 120)}) and not shown.")
        elif curve.cpu != model:
            words.append(
                f"The curve of {name} was measured on another CPU ({one_line(curve.cpu, 80)}) and is not shown."
            )
        else:
            kept.append(curve)
            words.append(
                f"{name} beside {one_line(curve.plain, 80)}, which took {milliseconds(curve.plain_ms)} ms there: "
                f"{plural(curve.rounds, 'round')} of their own, {one_line(curve.started_utc, 40)}, commit "
                f"{one_line(curve.commit, 40)}{' (with uncommitted changes)' if curve.dirty else ''}: "
                f"{one_line(curve.command, 300)}"
            )
    if not kept:
        words.append(
            "How speed grows with the share that holds, by real passes: python -m bench speculation --format "
            f"{one_line(cell.format, 20)} -t {cell.threads} --model {one_line(summary.model.name, 120)} --out RUN_DIR, "
            "then python -m bench report RUN_DIR."
        )
    return kept, words


def curve_table(curves: Sequence[SpeculationCurve]) -> FigureTable:
    """A row for each point: shares that were set, then the model's own drafts."""
    return FigureTable(HEADINGS, [_row(curve, point) for curve in curves for point in curve.points])


def _row(curve: SpeculationCurve, point: CurvePoint) -> list[str]:
    return [
        "the model's own" if point.share is None else f"{100 * point.share:.3g} % right",
        f"{one_line(curve.variant, 80)} × {curve.threads}",
        percent(point.held),
        significant(point.codes_per_pass),
        significant(point.passes_per_frame),
        milliseconds(point.ms),
        times(point.speedup),
    ]


def curve_chart(curves: Sequence[SpeculationCurve]) -> Chart | None:
    """A line for each curve over the share that held; the models' own drafts stand as rings."""
    shown = list(curves)[: len(_COLOURS)]
    if not shown:
        return None
    with drawing():
        return Chart(_draw(shown, is_wide=True), _draw(shown, is_wide=False), starred=False)


def _draw(curves: Sequence[SpeculationCurve], *, is_wide: bool) -> str:
    legend = 20.0 * len(curves)
    if is_wide:
        figure, axes = new_axes(1110, 380, 58, 200, 16, 48)
    else:
        figure, axes = new_axes(340, 310 + legend, 46, 12, 16, 50 + legend)
    points = [point for curve in curves for point in curve.points]
    axes.set_xlim(-3, 103)
    axes.set_ylim(0, 1.1 * max([1.0, *(point.speedup.hi for point in points)]))
    axes.axhline(1, color=MUTED, linewidth=1.5)
    axes.grid(visible=True)
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.xaxis.set_major_locator(MultipleLocator(10 if is_wide else 20))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel("drafts that held, %", fontsize=13)
    axes.set_ylabel("speed over the plain decoder", fontsize=13)
    for number, curve in enumerate(curves):
        _line(axes, curve, _COLOURS[number])
        _name(axes, curve, number, is_wide=is_wide)
    told = "; ".join(
        f"{one_line(curve.variant, 80)} × {curve.threads}, "
        f"{'no draft' if point.held is None else f'{percent(point.held)} held'}: {times(point.speedup)}"
        for curve in curves
        for point in curve.points
    )
    name = f"curve-{'wide' if is_wide else 'narrow'}"
    return inline(figure, name, "Speed over the plain decoder by the share of drafts that held", told)


def _line(axes: Axes, curve: SpeculationCurve, color: str) -> None:
    placed = [(place, point) for point in curve.points if (place := _place(point)) is not None]
    made = sorted((place, point.speedup.ratio) for place, point in placed if point.share is not None)
    axes.plot([place for place, _ in made], [ratio for _, ratio in made], color=color, linewidth=2, zorder=1.5)
    for x, point in placed:
        ratio, own = point.speedup, point.share is None
        interval_mark(axes, ratio.lo, ratio.ratio, ratio.hi, x, exact=True, upright=True)
        axes.plot(
            [x], [ratio.ratio], linestyle="none", marker="o", markersize=11 if own else 5.5, zorder=3,
            markerfacecolor=PAPER if own else color, markeredgecolor=color, markeredgewidth=2.2 if own else 1.8,
        )  # fmt: skip


def _place(point: CurvePoint) -> float | None:
    """Where a point stands, in percent: at the share that was set where no draft was asked for; None without either."""
    share = point.share if point.held is None else point.held
    return None if share is None else 100 * share


def _name(axes: Axes, curve: SpeculationCurve, number: int, *, is_wide: bool) -> None:
    """A swatch with the curve's name, right of the plot or below it."""
    box = axes.get_window_extent()
    x = 1 + 20 / box.width if is_wide else 0.0
    y = 1 - (10 + 24 * number) / box.height if is_wide else -(60 + 20 * number) / box.height
    shared: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False}
    axes.plot([x, x + 22 / box.width], [y, y], color=_COLOURS[number], linewidth=2.5, **shared)
    axes.text(
        x + 30 / box.width, y, f"{one_line(curve.variant, 18)} × {curve.threads}", va="center", fontsize=13, color=INK,
        **shared,
    )  # fmt: skip
