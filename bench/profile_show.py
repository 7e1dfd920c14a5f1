"""A profile in words, rows and bars: on the terminal, and handed to `reports` as a page."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from bench.profile_record import LABELS, PartTime, Profile
from bench.records import CellRecord
from cplab.commandline import console
from reports.profile_page import ProfilePage, write_profile_html, write_profile_svg
from reports.stacked import Layer
from reports.wording import NOTHING, plural, significant
from reports.writing import replace_text

COLUMNS = ("part", "ms a frame", "share", "MB a frame", "GB/s")
#: Columns of the terminal that a table of passes takes: for its labels, and for a pass.
_LABEL_WIDTH, _NUMBER_WIDTH = 11, 6


def page(profile: Profile) -> ProfilePage:
    """The profile put into words and rows."""
    largest = max(profile.parts, key=lambda part: part.ms)
    return ProfilePage(
        title=f"Where a frame's time goes: {profile.variant} on {plural(profile.threads, 'thread')}",
        subtitle=f"{profile.model} · {profile.started_utc} · python -m bench profile",
        headline=f"{significant(profile.frame_ms)} ms a frame in {profile.passes} passes, "
        f"{_share(largest.share)} of it {_label(largest)}.",
        notes=notes(profile),
        columns=list(COLUMNS),
        rows=[*(_row(part) for part in profile.parts), _sum_row(profile)],
        layers=[Layer(part.name, _label(part), part.pass_ms) for part in profile.parts],
    )


def notes(profile: Profile) -> list[str]:
    """What stands below the table, a sentence each."""
    cost = profile.tracing
    found = [
        f"The parts sum to {_share(profile.sum_share)} of the frame, {significant(profile.frame_ms)} ms as its "
        f"caller sees it (the middle half of {plural(profile.frames, 'traced frame')}).",
        f"Tracing costs {100 * (cost.ratio - 1):.2f} % [{100 * (cost.lo - 1):.2f}, {100 * (cost.hi - 1):.2f}], by "
        f"{plural(profile.frames, 'pair')} of frames with and without it in turn; without it the median is "
        f"{significant(profile.untraced_ms)} ms.",
    ]
    if profile.threads > 1:
        by_member = ", ".join(significant(ms) for ms in profile.waiting_ms)
        found.append(f"Waiting of each member: {by_member} ms a frame.")
    if profile.counters:
        found.append(f"perf stat, a frame: {_counters(profile.counters)}.")
    if profile.counters_reason:
        found.append(f"Counters of the processor: {profile.counters_reason}.")
    if profile.oversubscribed:
        found.append("More threads than CPUs.")
    return found


def print_profile(profile: Profile) -> None:
    """Table, passes and notes on the terminal."""
    shown = page(profile)
    console.print(f"{shown.title}, {profile.model}", highlight=False, markup=False)
    console.print(shown.headline, highlight=False, markup=False)
    console.print()
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(shown.columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in shown.rows:
        table.add_row(*row, style="bold" if row is shown.rows[-1] else "")
    console.print(table)
    _print_passes(profile)
    console.print()
    for note in shown.notes:
        console.print(note, highlight=False, markup=False)


def _print_passes(profile: Profile) -> None:
    """Milliseconds by pass, in as many blocks of columns as the terminal's width asks for."""
    fit = max(1, (console.width - _LABEL_WIDTH) // _NUMBER_WIDTH)
    blocks = -(-profile.passes // fit)
    size = -(-profile.passes // blocks)
    for first in range(0, profile.passes, size):
        columns = range(first, min(first + size, profile.passes))
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("ms in pass", no_wrap=True, min_width=_LABEL_WIDTH - 1)
        for index in columns:
            table.add_column(str(index + 1), justify="right", no_wrap=True, min_width=_NUMBER_WIDTH - 1)
        for part in profile.parts:
            if part.ms:
                table.add_row(_label(part), *(_short(part.pass_ms[index]) for index in columns))
        totals = [sum(part.pass_ms[index] for part in profile.parts) for index in columns]
        table.add_row("sum", *(_short(ms) for ms in totals), style="bold")
        console.print()
        console.print(table)


def _short(ms: float) -> str:
    """At most five characters for anything below ten seconds."""
    return f"{ms:.3f}" if ms < 9.9995 else f"{ms:.2f}" if ms < 99.995 else f"{ms:.0f}"


def _row(part: PartTime) -> list[str]:
    streamed = significant(part.bytes / 1e6) if part.bytes else NOTHING
    return [_label(part), significant(part.ms), _share(part.share), streamed, significant(part.gbps)]


def _sum_row(profile: Profile) -> list[str]:
    ms, streamed = sum(part.ms for part in profile.parts), sum(part.bytes for part in profile.parts)
    return [
        "sum",
        significant(ms),
        _share(profile.sum_share),
        significant(streamed / 1e6),
        significant(streamed / ms / 1e6),
    ]


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _label(part: PartTime) -> str:
    return LABELS.get(part.name, part.name)


def _counters(counts: dict[str, float]) -> str:
    told = [f"{event} {significant(value)}{' ms' if event == 'task-clock' else ''}" for event, value in counts.items()]
    if counts.get("cycles") and counts.get("instructions"):
        told.append(f"{significant(counts['instructions'] / counts['cycles'])} instructions a cycle")
    return ", ".join(told)


def print_failure(record: CellRecord) -> None:
    """Why there is no profile."""
    told = record.reason or record.gate.detail
    console.print(
        f"{record.variant} x {record.threads}: {record.gate.status}: {told}", highlight=False, markup=False
    )  # fmt: skip


def write_files(profile: Profile, *, json: Path | None, html: Path | None, svg: Path | None) -> None:
    """The profile with its raw samples as JSON, as a page, and its plot alone; those that are asked for.

    Raises:
        OSError: a file cannot be written.
    """
    if json is not None:
        replace_text(json, f"{profile.model_dump_json(by_alias=True)}\n")
    if html is not None:
        write_profile_html(page(profile), html)
    if svg is not None:
        write_profile_svg(page(profile), svg)
