"""The tables of a quality page: figures of each variant, and heat maps by codebook and by time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.records.quality import Quality, QualityCell, TeacherForced
from reports.quality_points import share
from reports.wording import NOTHING, percent, significant

PINNED = (
    "variant",
    "agreement",
    "by margin",
    "top 5",
    "KL mean",
    "KL 99 %",
    "KL worst",
    "Δp rms",
    "rmse",
    "cosine",
)
NAIVE = ("variant", "rmse", "naive rmse", "worst ratio", "allowed", "naive agreement", "")
FREE = ("variant", "agreement", "whole frames", "codes before the first other one")
LOOP = ("variant", "frames", "distinct", "repeats", "codes used", "not finite", "first other frame", "")


@dataclass(frozen=True, slots=True)
class Heat:
    """A table whose entries have a shade.

    Attributes:
        title: what it is of.
        columns: headings; the first is of the rows' names.
        rows: a name, and an entry for each column with its shade from 0 (good) to 1 (bad), or None for none.
    """

    title: str
    columns: list[str]
    rows: list[tuple[str, list[tuple[str, float | None]]]]


def pinned_rows(cells: Sequence[QualityCell], of: Callable[[QualityCell], TeacherForced | None]) -> list[list[str]]:
    """Rows under `PINNED`."""
    rows = []
    for cell in cells:
        found = of(cell)
        if found is None:
            continue
        distances = [
            share(found.top5),
            NOTHING if found.kl is None else f"{significant(found.kl.value)} {_bounds(found.kl.lo, found.kl.hi)}",
            significant(found.kl_p99),
            significant(found.kl_worst) + _where(found),
            NOTHING if found.delta_p_rms is None else percent(found.delta_p_rms),
            significant(found.rmse.value if found.rmse else None),
            NOTHING if found.cosine is None else f"{found.cosine.value:.6f}",
        ]
        if found.non_finite:
            distances[1] = f"{found.non_finite} of {found.rows} rows not finite"
        rows.append([cell.variant, share(found.agreement), share(found.agreement_by_margin), *distances])
    return rows


def naive_rows(cells: Sequence[QualityCell]) -> list[list[str]]:
    """Rows under `NAIVE`."""
    return [
        [
            cell.variant,
            significant(cell.teacher_forced.rmse.value if cell.teacher_forced and cell.teacher_forced.rmse else None),
            significant(cell.naive.rmse),
            significant(cell.naive.ratio),
            significant(cell.naive.allowed),
            percent(cell.naive.agreement),
            "within" if cell.naive.passed else "beyond",
        ]
        for cell in cells
        if cell.naive is not None
    ]


def free_rows(cells: Sequence[QualityCell]) -> list[list[str]]:
    """Rows under `FREE`."""
    return [
        [
            cell.variant,
            share(cell.free_running.agreement),
            f"{cell.free_running.frames_matched}/{cell.free_running.frames}",
            f"{significant(cell.free_running.codes_before.value)} "
            f"{_bounds(cell.free_running.codes_before.lo, cell.free_running.codes_before.hi)}",
        ]
        for cell in cells
        if cell.free_running is not None
    ]


def loop_rows(found: Quality) -> list[list[str]]:
    """Rows under `LOOP`, float32's own first."""
    if found.float_rollout is None:
        return []
    named = [("float32", found.float_rollout.own, "")]
    for cell in found.cells:
        if cell.rollout is not None:
            first = cell.rollout.first_difference
            named.append((cell.variant, cell.rollout.own, "none" if first is None else str(first)))
    return [
        [name, *map(str, (own.frames, own.distinct, own.repeats, own.codes_used, own.non_finite)), first, own.stopped]
        for name, own, first in named
    ]


def heats(found: Quality) -> list[Heat]:
    """Agreement and divergence by codebook, first differences by codebook, agreement along the rollout."""
    maps = [
        _heat(
            found, "Agreement by codebook, %", "CB",
            lambda cell: cell.teacher_forced.agreement_by_codebook if cell.teacher_forced else [],
            lambda value: (f"{100 * value:.0f}", 1 - value),
        ),
        _heat(
            found, "Mean divergence by codebook, thousandths of a nat", "CB",
            lambda cell: cell.teacher_forced.kl_by_codebook if cell.teacher_forced else [],
            lambda value: (significant(1000 * value), _shade_of_nats(value)),
        ),
        _heat(
            found, "Free-running: frames whose first other code is this codebook's", "CB",
            lambda cell: [float(count) for count in cell.free_running.first_difference] if cell.free_running else [],
            lambda value: (f"{value:.0f}", None),
        ),
    ]  # fmt: skip
    window = next((cell.rollout.window for cell in found.cells if cell.rollout is not None), 0)
    maps.append(
        _heat(
            found, f"Along float32's rollout: agreement in windows of {window} frames, %", "",
            lambda cell: cell.rollout.along_agreement if cell.rollout else [],
            lambda value: (f"{100 * value:.0f}", 1 - value),
            lambda number: f"{number * window}–",
        )
    )  # fmt: skip
    return [heat for heat in maps if heat.rows]


def _heat(
    found: Quality,
    title: str,
    prefix: str,
    values: Callable[[QualityCell], Sequence[float]],
    entry: Callable[[float], tuple[str, float | None]],
    heading: Callable[[int], str] | None = None,
) -> Heat:
    rows = [(cell.variant, [entry(value) for value in values(cell)]) for cell in found.cells if values(cell)]
    width = max((len(entries) for _, entries in rows), default=0)
    named = heading or (lambda number: f"{prefix}{number + 1}")
    return Heat(title, ["variant", *(named(number) for number in range(width))], rows)


def _shade_of_nats(value: float) -> float:
    """From a thousandth of a nat (next to nothing) to one nat (another distribution), by powers of ten."""
    return 0.0 if value <= 1e-3 else min(1.0, (math.log10(value) + 3) / 3)


def _where(found: TeacherForced) -> str:
    return "" if found.kl_worst_at is None else f" (frame {found.kl_worst_at[0]}, CB{found.kl_worst_at[1]})"


def _bounds(low: float, high: float) -> str:
    return f"[{significant(low)}, {significant(high)}]"
