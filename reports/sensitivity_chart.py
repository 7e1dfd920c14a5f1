"""Damage against bytes saved: each class of matrices quantised alone; what is down and right is better."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from matplotlib.ticker import NullFormatter

from bench.records.recipe import Sensitivity, Trial
from reports.bar_drawing import Chart
from reports.svg import EXACT, INK, OTHER, PAPER, drawing, inline, new_axes
from reports.wording import one_line, significant

#: Left, bottom, right, top, in units of the figure.
_Box = tuple[float, float, float, float]
_TITLE = "Megabytes a frame that each class saves alone, and mean divergence that it costs"


def sensitivity_chart(found: Sensitivity) -> Chart | None:
    """The plot; None where nothing that was tried both saves and costs something that a logarithm can show."""
    shown = [
        trial for trial in found.trials if _saved_mb(found, trial) > 0 and trial.damage > 0 and isfinite(trial.damage)
    ]
    if not shown:
        return None
    with drawing():
        return Chart(wide=_draw(found, shown, is_wide=True), narrow=_draw(found, shown, is_wide=False), starred=False)


def _saved_mb(found: Sensitivity, trial: Trial) -> float:
    return (found.base.bytes_per_frame - trial.bytes_per_frame) / 1e6


def _draw(found: Sensitivity, shown: Sequence[Trial], *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 430 if is_wide else 400, 66, 24 if is_wide else 10, 26, 48)
    right = max(_saved_mb(found, trial) for trial in shown)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0, right * (1.12 if is_wide else 1.35))
    axes.set_ylim(min(trial.damage for trial in shown) / 2, max(trial.damage for trial in shown) * 2)
    axes.grid(visible=True)
    axes.tick_params(labelsize=12, length=0, pad=6, which="both")
    axes.locator_params(axis="x", nbins=9 if is_wide else 4)
    axes.set_xlabel("MB a frame saved", fontsize=13)
    axes.set_ylabel("KL mean, nats", fontsize=13)
    kinds = list(dict.fromkeys(kind for trial in shown for kind in trial.formats.values()))
    size = 12 if is_wide else 11
    taken: list[_Box] = []
    for trial in shown:
        ((unit, kind),) = trial.formats.items()
        color = OTHER if kinds.index(kind) % 2 else EXACT
        x, y = _saved_mb(found, trial), trial.damage
        fill = PAPER if kinds.index(kind) % 2 else color
        axes.plot([x], [y], "o", markersize=8, markerfacecolor=fill, markeredgecolor=color)
        label = one_line(f"{unit} {kind}", 30)
        place = _free_place(tuple(axes.transData.transform((x, y))), label, size, taken)
        axes.annotate(label, (x, y), xytext=place, textcoords="offset points", fontsize=size, color=INK)
    told = "; ".join(
        f"{', '.join(f'{unit} {kind}' for unit, kind in trial.formats.items())}: "
        f"{significant(_saved_mb(found, trial))} MB, {significant(trial.damage)} nats"
        for trial in shown
    )
    return inline(figure, f"sensitivity-{'wide' if is_wide else 'narrow'}", _TITLE, told)


def _free_place(at: tuple[float, float], label: str, size: float, taken: list[_Box]) -> tuple[float, float]:
    """Where a label goes beside its point: to its right, lower or higher where another stands."""
    width = 0.62 * size * len(label)
    for right, up in [(8, -4 + lines * (size + 2)) for lines in (0, -1, 1, -2, 2)]:
        box = (at[0] + right, at[1] + up, at[0] + right + width, at[1] + up + size)
        if not any(_overlap(box, other) for other in taken):
            break
    taken += [box, (at[0] - 5, at[1] - 5, at[0] + 5, at[1] + 5)]
    return right, up


def _overlap(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
