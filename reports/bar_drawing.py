"""How a bar chart is drawn: horizontal bars from zero, whiskers, reference lines; once wide and once narrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from reports.svg import EXACT, INK, MUTED, OTHER, PAPER, drawing, inline, new_axes


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart as two SVG elements, for wide and for narrow pages; ``starred`` where a label has a star."""

    wide: str
    narrow: str
    starred: bool


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: ``value`` and its whiskers in the chart's unit, ``text`` beside it; hollow where not exact."""

    label: str
    value: float
    text: str
    exact: bool
    starred: bool
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A vertical reference line; ``label`` stands above the bars."""

    at: float
    label: str
    color: str
    dashes: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes in units of one pixel. On narrow pages the labels stand above their bars."""

    name: str
    width: float
    label_width: float
    value_width: float
    row: float
    bar: float
    font: float
    characters: int


def shortened(label: str, characters: int) -> str:
    """``label`` with its middle left out where it is too long: names often differ at their end."""
    if len(label) <= characters:
        return label
    tail = (characters - 1) // 2
    return f"{label[: characters - 1 - tail]}…{label[-tail:]}"


def bar_chart(name: str, bars: list[Bar], lines: Sequence[Line], unit: str, title: str) -> Chart | None:
    """Draw ``bars`` from top to bottom with ``lines`` behind them; None where there is no bar."""
    if not bars:
        return None
    longest = min(34, max(len(bar.label) for bar in bars))
    wide = _Layout("wide", 1110, 24 + 7.8 * longest, 170, 30, 18, 13, 34)
    narrow = _Layout("narrow", 340, 10, 14, 46, 15, 13, 38)
    with drawing():
        return Chart(
            wide=_draw(name, bars, lines, unit, title, wide),
            narrow=_draw(name, bars, lines, unit, title, narrow),
            starred=any(bar.starred for bar in bars),
        )


def _draw(name: str, bars: list[Bar], lines: Sequence[Line], unit: str, title: str, layout: _Layout) -> str:
    is_narrow = layout.name == "narrow"
    line_row = 18.0
    top, bottom = 8 + line_row * len(lines), 46
    height = top + layout.row * len(bars) + bottom
    figure, axes = new_axes(layout.width, height, layout.label_width, layout.value_width, top, bottom)
    end = max([bar.high or bar.value for bar in bars] + [line.at for line in lines])
    axes.set_xlim(0, end * 1.04)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_color(MUTED)
    axes.grid(visible=True, axis="x")
    axes.tick_params(labelsize=layout.font - 1, length=0, pad=6)
    axes.locator_params(axis="x", nbins=5 if is_narrow else 9)
    axes.set_xlabel(unit, fontsize=layout.font)
    down = (layout.row - layout.bar) / 2 / layout.row - 0.04 if is_narrow else 0.0
    for row, bar in enumerate(bars):
        _draw_bar(axes, bar, row + down, layout)
        label = shortened(bar.label, layout.characters)
        if is_narrow:
            text_at = row - 0.5 + 0.36
            spare = max(8, 44 - len(bar.text))
            short = shortened(label, spare)
            frame = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
            axes.text(
                0.01,
                text_at,
                short,
                transform=axes.get_yaxis_transform(),
                va="center",
                fontsize=layout.font - 1,
                bbox=frame,
            )
            axes.text(
                1.0,
                text_at,
                bar.text,
                transform=axes.get_yaxis_transform(),
                va="center",
                ha="right",
                fontsize=layout.font - 1,
                bbox=frame,
            )
        else:
            axes.text(
                -0.012, row, label, transform=axes.get_yaxis_transform(), va="center", ha="right", fontsize=layout.font
            )
            axes.text(1.015, row, bar.text, transform=axes.get_yaxis_transform(), va="center", fontsize=layout.font)
    _draw_lines(axes, lines, len(bars), layout, line_row)
    description = "; ".join(f"{bar.label}: {bar.text} {unit}" for bar in bars)
    return inline(figure, f"{name}-{layout.name}", title, description)


def _draw_bar(axes: Axes, bar: Bar, at: float, layout: _Layout) -> None:
    thickness = layout.bar / layout.row
    color = EXACT if bar.exact else OTHER
    fill = color if bar.exact else PAPER
    axes.barh(
        at, bar.value, height=thickness, color=fill, edgecolor=color, linewidth=1.5, hatch=None if bar.exact else "////"
    )
    if bar.low is not None and bar.high is not None:
        error = [[max(0.0, bar.value - bar.low)], [max(0.0, bar.high - bar.value)]]
        axes.errorbar(bar.value, at, xerr=error, fmt="none", ecolor=INK, elinewidth=1.5, capsize=4, capthick=1.5)


def _draw_lines(axes: Axes, lines: Sequence[Line], rows: int, layout: _Layout, line_row: float) -> None:
    """Lines from left to right get label rows from top to bottom, so that no line crosses another's label."""
    end = axes.get_xlim()[1]
    for index, line in enumerate(sorted(lines, key=lambda line: line.at)):
        label_y = -0.5 - (len(lines) - index - 0.5) * line_row / layout.row
        style = "solid" if not line.dashes else (0, line.dashes)
        axes.plot(
            [line.at, line.at],
            [rows - 0.5, label_y - 0.1],
            color=line.color,
            linewidth=1.6,
            linestyle=style,
            clip_on=False,
            zorder=1.5,
        )
        to_left = line.at > 0.5 * end
        offset = (-5 if to_left else 5, 0)
        frame = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
        axes.annotate(
            line.label,
            (line.at, label_y),
            xytext=offset,
            textcoords="offset points",
            ha="right" if to_left else "left",
            va="center",
            fontsize=layout.font - 1,
            color=INK,
            bbox=frame,
            annotation_clip=False,
        )
