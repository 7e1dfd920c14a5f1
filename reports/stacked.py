"""Stacked bars, one for each pass: where its time went. Drawn wide and narrow, and wide as a file of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, MultipleLocator

from reports.bar_drawing import Chart
from reports.svg import FAINT, INK, MUTED, PAPER, PARTS, drawing, inline, new_axes
from reports.wording import significant

_LEGEND_ROW = 20.0
#: Up to so many passes have a number each.
_EVERY_PASS = 24


@dataclass(frozen=True, slots=True)
class Layer:
    """One part in every bar: ``name`` chooses its colour (`reports.svg.PARTS`), ``values`` are by pass."""

    name: str
    label: str
    values: Sequence[float]


def stacked_chart(name: str, layers: Sequence[Layer], unit: str, title: str) -> Chart | None:
    """Bars over passes 1, 2, ..., the first layer at the bottom; layers of zeros are left out, None where all are."""
    shown = [layer for layer in layers if any(value > 0 for value in layer.values)]
    if not shown:
        return None
    with drawing():
        return Chart(
            wide=_draw(f"{name}-wide", shown, unit, title, is_wide=True),
            narrow=_draw(f"{name}-narrow", shown, unit, title, is_wide=False),
            starred=False,
        )


def standalone(svg: str) -> str:
    """An SVG element of this package as a file of its own, light or dark as its viewer is, on its own paper."""
    colours = files("reports").joinpath("templates/colours.css").read_text(encoding="utf-8")
    head, rest = svg.split("<title", 1)
    background = "svg { background: var(--paper); font-family: var(--sans); }"
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}<style>\n{colours}{background}\n</style>\n<title{rest}\n'


def _draw(name: str, layers: Sequence[Layer], unit: str, title: str, *, is_wide: bool) -> str:
    passes = len(layers[0].values)
    if is_wide:
        figure, axes = new_axes(1110, 400, 60, 210, 14, 48)
    else:
        legend = _LEGEND_ROW * -(-len(layers) // 2)
        figure, axes = new_axes(340, 270 + legend, 44, 8, 10, 48 + legend)
    bottoms = [0.0] * passes
    for layer in layers:
        axes.bar(
            range(1, passes + 1),
            layer.values,
            bottom=bottoms,
            width=0.82,
            color=PARTS.get(layer.name, FAINT),
            edgecolor=PAPER,
            linewidth=0.6,
        )
        bottoms = [bottom + value for bottom, value in zip(bottoms, layer.values, strict=True)]
    axes.set_xlim(0.4, passes + 0.6)
    axes.set_ylim(0, max(bottoms) * 1.04)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=12, length=0, pad=5)
    axes.xaxis.set_major_locator(
        MultipleLocator(1) if is_wide and passes <= _EVERY_PASS else MaxNLocator(8, integer=True)
    )
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10]))
    axes.set_xlabel("pass", fontsize=13)
    axes.set_ylabel(f"{unit} in a pass", fontsize=13)
    (_legend_beside if is_wide else _legend_below)(axes, layers, unit)
    totals = "; ".join(f"{layer.label}: {significant(sum(layer.values))} {unit} a frame" for layer in layers)
    return inline(figure, name, title, totals)


def _legend_beside(axes: Axes, layers: Sequence[Layer], unit: str) -> None:
    """Labels right of the bars in the order of the stack, each with its milliseconds a frame."""
    box = axes.get_window_extent()
    axes.text(
        1 + 190 / box.width,
        1.0,
        f"{unit} a frame",
        transform=axes.transAxes,
        ha="right",
        va="top",
        fontsize=12,
        color=MUTED,
    )
    for row, layer in enumerate(reversed(layers)):
        y = 1 - (row + 1.6) * (_LEGEND_ROW + 4) / box.height
        _entry(axes, layer, 1 + 22 / box.width, y)
        axes.text(
            1 + 190 / box.width,
            y,
            significant(sum(layer.values)),
            transform=axes.transAxes,
            ha="right",
            va="center",
            fontsize=13,
            color=INK,
        )


def _legend_below(axes: Axes, layers: Sequence[Layer], unit: str) -> None:
    """Labels in two columns under the bars, top of the stack first."""
    box = axes.get_window_extent()
    for number, layer in enumerate(reversed(layers)):
        column, row = number % 2, number // 2
        _entry(axes, layer, (-30 + 160 * column) / box.width, -(58 + _LEGEND_ROW * row) / box.height)


def _entry(axes: Axes, layer: Layer, x: float, y: float) -> None:
    """A swatch and a label, centred on ``y`` in fractions of the axes."""
    box = axes.get_window_extent()
    width, height = 14 / box.width, 12 / box.height
    axes.add_patch(
        Rectangle(
            (x, y - height / 2),
            width,
            height,
            transform=axes.transAxes,
            facecolor=PARTS.get(layer.name, FAINT),
            edgecolor="none",
            clip_on=False,
        )
    )
    axes.text(x + 21 / box.width, y, layer.label, transform=axes.transAxes, va="center", fontsize=13, color=INK)
