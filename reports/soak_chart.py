"""A soak over time: medians of stretches, so that heat and throttling show as a slope or a step."""

from __future__ import annotations

from matplotlib.ticker import MaxNLocator

from bench.records import Soak
from reports.bar_drawing import Chart
from reports.svg import EXACT, drawing, inline, new_axes
from reports.wording import one_line, plural, significant


def soak_sentence(soak: Soak) -> str:
    """Its start beside its end."""
    return (
        f"{one_line(soak.variant, 80)} on {plural(soak.threads, 'thread')}, {plural(soak.frames, 'frame')} in "
        f"{significant(soak.seconds)} s without a break: {significant(soak.start_ms)} ms in the first tenth of the "
        f"time, {significant(soak.end_ms)} ms in the last ({100 * (soak.end_ms / soak.start_ms - 1):+.1f} %)."
    )


def soak_chart(soak: Soak | None) -> Chart | None:
    """Milliseconds a frame over seconds; None where there was no soak."""
    if soak is None or not soak.points or soak.start_ms <= 0:
        return None
    with drawing():
        return Chart(wide=_draw(soak, is_wide=True), narrow=_draw(soak, is_wide=False), starred=False)


def _draw(soak: Soak, *, is_wide: bool) -> str:
    figure, axes = new_axes(1110 if is_wide else 340, 260, 62 if is_wide else 48, 14, 14, 48)
    axes.plot([point.at_s for point in soak.points], [point.ms for point in soak.points], color=EXACT, linewidth=2,
              marker="o", markersize=4)  # fmt: skip
    axes.set_xlim(0, soak.seconds)
    axes.set_ylim(0, max(point.ms for point in soak.points) * 1.08)
    axes.grid(visible=True, axis="y")
    axes.tick_params(labelsize=12, length=0, pad=5)
    axes.xaxis.set_major_locator(MaxNLocator(8 if is_wide else 4))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_xlabel("seconds", fontsize=13)
    axes.set_ylabel("ms a frame", fontsize=13)
    return inline(figure, f"soak-{'wide' if is_wide else 'narrow'}", "ms a frame over a soak", soak_sentence(soak))
