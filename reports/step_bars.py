"""A bar for each step of the loop, the talker's part and the code predictor's: this machine beside another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from bench.records import Summary
from reports.bar_drawing import Chart
from reports.svg import INK, LIMIT, MUTED, PAPER, PARTS, drawing, inline, new_axes
from reports.talker_and_cp import Step, steps
from reports.verdict import FRAME_MS, published_shape
from reports.wording import significant

#: Colours of the two parts; the page's key names them.
TALKER, CP = PARTS["quantise"], PARTS["o"]
_TITLE = "Talker and code predictor, ms a step"
_ROW, _NARROW_ROW, _BAR = 44.0, 62.0, 22.0
_LETTER = 7.3


def step_chart(summary: Summary) -> Chart | None:
    """The bars; None where this run has no talker, or a model that other machines' figures say nothing of."""
    if summary.talker is None or not published_shape(summary.model):
        return None
    shown = [step for step in steps(summary) if step.both is not None]
    if all(step.another_machine for step in shown):
        return None
    with drawing():
        return Chart(wide=_draw(shown, is_wide=True), narrow=_draw(shown, is_wide=False), starred=False)


def _draw(shown: Sequence[Step], *, is_wide: bool) -> str:
    row = _ROW if is_wide else _NARROW_ROW
    height = 30 + row * len(shown) + 46
    longest = max(len(line) for step in shown for line in _label(step, 44))
    left, right = (24 + _LETTER * longest, 150.0) if is_wide else (10.0, 14.0)
    figure, axes = new_axes(1110 if is_wide else 340, height, left, right, 30, 46)
    end = max(*(step.both.p50 for step in shown if step.both), FRAME_MS)
    axes.set_xlim(0, end * 1.03)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_color(MUTED)
    axes.grid(visible=True, axis="x")
    axes.tick_params(labelsize=12, length=0, pad=6)
    axes.locator_params(axis="x", nbins=9 if is_wide else 5)
    axes.set_xlabel("ms a step", fontsize=13)
    axes.axvline(FRAME_MS, color=LIMIT, linewidth=1.5)
    axes.annotate(
        f"{FRAME_MS:g} ms: real time", (FRAME_MS, 1), xycoords=("data", "axes fraction"), xytext=(5, 8),
        textcoords="offset points", fontsize=12, color=LIMIT,
    )  # fmt: skip
    for number, step in enumerate(shown):
        _bar(axes, step, number, row, is_wide=is_wide)
    told = "; ".join(f"{step.label}: {_sum(step)} ms" for step in shown)
    return inline(figure, f"step-{'wide' if is_wide else 'narrow'}", _TITLE, told)


def _bar(axes: Axes, step: Step, number: int, row: float, *, is_wide: bool) -> None:
    if step.talker is None:
        return
    at = number if is_wide else number + (row - _BAR) / 2 / row - 0.06
    # What was not measured here is paler.
    shared: dict[str, Any] = {
        "height": _BAR / row,
        "edgecolor": PAPER,
        "linewidth": 1.0,
        "alpha": 0.45 if step.another_machine else 1,
    }
    axes.barh(at, step.talker.p50, color=TALKER, **shared)
    axes.barh(at, step.cp.p50, left=step.talker.p50, color=CP, **shared)
    if step.both and not step.another_machine:
        error = [[step.both.p50 - step.both.lo], [step.both.hi - step.both.p50]]
        axes.errorbar(step.both.p50, at, xerr=error, fmt="none", ecolor=INK, elinewidth=1.5, capsize=4, capthick=1.5)
    across = axes.get_yaxis_transform()
    if is_wide:
        axes.text(-0.012, at, "\n".join(_label(step, 44)), transform=across, va="center", ha="right", fontsize=13)
        axes.text(1.015, at, _sum(step), transform=across, va="center", fontsize=13)
        return
    frame = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.0}
    text = f"{_label(step, 46)[0]}\n{_sum(step)}"
    axes.text(0.01, number - 0.5 + 17 / row, text, transform=across, va="center", fontsize=12, bbox=frame)


def _sum(step: Step) -> str:
    parts = (step.talker, step.cp, step.both)
    talker, cp, both = (significant(one.p50) if one else "" for one in parts)
    return f"{talker} + {cp} = {both}"


def _label(step: Step, width: int) -> list[str]:
    """The label in at most two lines; the second, in brackets, is left out on narrow pages."""
    head, bracket, tail = step.label.partition(" (")
    if len(head) > width:
        half = width // 2
        head = f"{head[: half - 1]}…{head[-half:]}"
    return [head, f"({tail}"] if bracket else [head]
