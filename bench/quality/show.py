"""What ``bench quality`` found, on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.markup import escape
from rich.table import Table

from bench.records.quality import Estimate, Quality, QualityCell, TeacherForced
from cplab.commandline import console

_COLOURS = {"pass": "green", "fail": "red", "crash": "red", "skip": "yellow"}


def print_quality(found: Quality) -> None:
    """Every table, the warning first; `print_outcome` has told already which variants passed."""
    if found.warning:
        console.print(found.warning, style="yellow", markup=False, highlight=False, soft_wrap=True)
    facts = found.facts
    console.print(
        f"{found.model.name}: {facts.golden_frames} frames of {facts.golden or 'the golden'}, "
        f"{facts.golden_distinct} distinct; float32 by {facts.law_by}",
        highlight=False,
        markup=False,
    )
    cells = [cell for cell in found.cells if cell.teacher_forced is not None]
    if cells:
        console.print(_pinned(cells, lambda cell: cell.teacher_forced, "the golden's codes pinned"))
        console.print(_distances(cells, lambda cell: cell.teacher_forced))
        console.print(_by_codebook(cells))
    recorded = [cell for cell in found.cells if cell.recorded is not None]
    if recorded:
        title = f"{facts.recorded}: {facts.recorded_frames} frames of recorded codes pinned"
        console.print(_pinned(recorded, lambda cell: cell.recorded, title))
        console.print(_distances(recorded, lambda cell: cell.recorded))
    heard = [cell for cell in found.cells if cell.audio is not None]
    if heard:
        console.print(_audio(heard, facts.recorded))
    running = [cell for cell in found.cells if cell.free_running is not None]
    if running:
        console.print(_free(running))
    rolled = [cell for cell in found.cells if cell.rollout is not None]
    if rolled and found.float_rollout is not None:
        console.print(_rollouts(found, rolled))
        told = f"talker: {found.float_rollout.talker}"
        unrelated = found.float_rollout.unrelated
        if unrelated is not None:
            told += f"; frames that have nothing to do with each other share {_share(unrelated)} of their codes"
        console.print(
            told,
            style="dim",
            highlight=False,
            markup=False,
        )
    if found.below_floor:
        console.print(found.below_floor, style="yellow", highlight=False, markup=False, soft_wrap=True)


def print_outcome(cell: QualityCell) -> None:
    """Whether a variant passed, in a line."""
    told = cell.reason or (cell.naive.detail if cell.naive is not None else cell.gate.detail if cell.gate else "")
    console.print(
        f"[{_COLOURS[cell.status]}]{cell.status:5}[/] {escape(f'{cell.variant} x {cell.threads}: {told}')}",
        highlight=False,
        soft_wrap=True,
    )


def _pinned(cells: Sequence[QualityCell], of: Callable[[QualityCell], TeacherForced | None], title: str) -> Table:
    table = _table(title, "agreement", "by margin", "top 5")
    for cell in cells:
        found = of(cell)
        if found is not None:
            shares = (found.agreement, found.agreement_by_margin, found.top5)
            table.add_row(cell.variant, *(_share_of(share) for share in shares))
    return table


def _distances(cells: Sequence[QualityCell], of: Callable[[QualityCell], TeacherForced | None]) -> Table:
    table = _table("", "KL mean", "KL worst", "Δp rms", "rmse", "cosine", "x naive")
    for cell in cells:
        found = of(cell)
        if found is None:
            continue
        naive = cell.naive if found is cell.teacher_forced else None
        table.add_row(
            cell.variant,
            f"{found.non_finite} rows not finite"
            if found.non_finite
            else _number(found.kl.value if found.kl else None),
            _number(found.kl_worst),
            "-" if found.delta_p_rms is None else _share(found.delta_p_rms),
            _number(found.rmse.value if found.rmse else None),
            "-" if found.cosine is None else f"{found.cosine.value:.5f}",
            "-" if naive is None or naive.ratio is None else f"{naive.ratio:.2f}",
        )
    return table


def _audio(cells: list[QualityCell], recorded: str) -> Table:
    table = _table(f"{recorded} pinned, as sound, beside float32's", "seconds", "cosine", "rmse", "mel dB")
    for cell in cells:
        found = cell.audio
        if found is not None:
            cosine = "-" if found.cosine is None else f"{found.cosine:.6f}"
            numbers = f"{found.seconds:.1f}", cosine, f"{found.rmse:.3g}", f"{found.mel_db:.3g}"
            table.add_row(cell.variant, *numbers)
    return table


def _by_codebook(cells: list[QualityCell]) -> Table:
    first = cells[0].teacher_forced
    count = len(first.agreement_by_codebook) if first is not None else 0
    table = _table(f"agreement by codebook, CB1 to CB{count}, %", *(str(g + 1) for g in range(count)))
    table.padding = (0, 1, 0, 0)  # fifteen columns are to fit a terminal of 80
    for cell in cells:
        if cell.teacher_forced is not None:
            table.add_row(cell.variant, *(f"{100 * share:.0f}" for share in cell.teacher_forced.agreement_by_codebook))
    return table


def _free(cells: list[QualityCell]) -> Table:
    table = _table("free-running", "agreement", "whole frames", "codes before another")
    for cell in cells:
        found = cell.free_running
        if found is not None:
            before = found.codes_before
            table.add_row(
                cell.variant,
                _share_of(found.agreement),
                f"{found.frames_matched}/{found.frames}",
                f"{before.value:.1f} [{before.lo:.1f}, {before.hi:.1f}]",
            )
    return table


def _rollouts(found: Quality, cells: list[QualityCell]) -> Table:
    headings = (
        "frames",
        "distinct",
        "repeats",
        "codes used",
        "not finite",
        "first other",
        "along, first",
        "last",
    )
    table = _table("rollout", *headings)
    if found.float_rollout is not None:
        own = found.float_rollout.own
        table.add_row("float32", *map(str, (own.frames, own.distinct, own.repeats, own.codes_used, own.non_finite)))
    for cell in cells:
        if cell.rollout is None:
            continue
        own, along = cell.rollout.own, cell.rollout.along_agreement
        table.add_row(
            cell.variant,
            *map(str, (own.frames, own.distinct, own.repeats, own.codes_used, own.non_finite)),
            "none" if cell.rollout.first_difference is None else str(cell.rollout.first_difference),
            _share(along[0]) if along else "-",
            _share(along[-1]) if len(along) > 1 else "-",
        )
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="bold")
    table.add_column("variant", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", overflow="fold")
    return table


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _share_of(found: Estimate | None) -> str:
    return "-" if found is None else f"{100 * found.value:.1f} % [{100 * found.lo:.1f}, {100 * found.hi:.1f}]"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
