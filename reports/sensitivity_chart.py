"""Damage against bytes saved: each class of matrices quantised alone; what is down and right is better."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from matplotlib.ticker import NullFormatter

from bench.records.recipe import Sensitivity, Trial
from reports.bar_drawing import Chart
from reports.label_places import write_names
from reports.svg import EXACT, OTHER, PAPER, drawing, inline, new_axes
from reports.wording import one_line, significant

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
    points = [(_saved_mb(found, trial), trial.damage) for trial in shown]
    for trial, (x, y) in zip(shown, points, strict=True):
        ((_, kind),) = trial.formats.items()
        color = OTHER if kinds.index(kind) % 2 else EXACT
        fill = PAPER if kinds.index(kind) % 2 else color
        axes.plot([x], [y], "o", markersize=8, markerfacecolor=fill, markeredgecolor=color)
    write_names(axes, points, [one_line(trial.named, 30) for trial in shown], 12 if is_wide else 11)
    told = "; ".join(
        f"{trial.named}: {significant(x)} MB, {significant(y)} nats"
        for trial, (x, y) in zip(shown, points, strict=True)
    )
    return inline(figure, f"sensitivity-{'wide' if is_wide else 'narrow'}", _TITLE, told)
