"""A profile in words and rows, for its own page, for a run's report and for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from bench.records import PART_LABELS, PROFILE_FILE, CellRecord, PartTime, Profile, Summary
from reports.profile_page import ProfilePage
from reports.stacked import Layer
from reports.verdict import fastest
from reports.wording import NOTHING, one_line, plural, significant

COLUMNS = ("part", "ms a frame", "share", "MB a frame", "GB/s")


def page(profile: Profile) -> ProfilePage:
    """The profile put into words and rows."""
    largest = max(profile.parts, key=lambda part: part.ms)
    return ProfilePage(
        title=f"Where a frame's time goes: {profile.variant} on {plural(profile.threads, 'thread')}",
        subtitle=f"{profile.model} · {profile.started_utc} · python -m bench profile",
        headline=f"{significant(profile.frame_ms)} ms a frame in {profile.passes} passes, "
        f"{_share(largest.share)} of it {label_of(largest)}.",
        notes=notes(profile),
        columns=list(COLUMNS),
        rows=[*(_row(part) for part in profile.parts), _sum_row(profile)],
        layers=[Layer(part.name, label_of(part), part.pass_ms) for part in profile.parts],
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


def without_profile(summary: Summary, records: Sequence[CellRecord]) -> str:
    """Why a run's fastest cell has no profile, and how to add one."""
    tried = [record for record in records if record.phase == "profile"]
    if tried:
        name = f"{one_line(tried[-1].variant, 80)} on {plural(tried[-1].threads, 'thread')}"
        reason = one_line(tried[-1].reason or tried[-1].gate.detail, 300) or "no reason was recorded"
        return f"{name} was not profiled: {reason}."
    best = fastest([cell for cell in summary.cells if cell.exact]) or fastest(summary.cells)
    if best is None:
        return "No cell has a time, so none was profiled."
    model = "" if summary.model.name == "synthetic:0.6b" else f" --model {shlex.quote(summary.model.name)}"
    return (
        f"The fastest cell was not profiled in this run. Into the run's folder, before bench report: "
        f"python -m bench profile {shlex.quote(best.variant)} -t {best.threads}{model} --json {PROFILE_FILE}"
    )


def _row(part: PartTime) -> list[str]:
    streamed = significant(part.bytes / 1e6) if part.bytes else NOTHING
    return [label_of(part), significant(part.ms), _share(part.share), streamed, significant(part.gbps)]


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


def label_of(part: PartTime) -> str:
    """The field's name for a part."""
    return PART_LABELS.get(part.name, part.name)


def _counters(counts: dict[str, float]) -> str:
    told = [f"{event} {significant(value)}{' ms' if event == 'task-clock' else ''}" for event, value in counts.items()]
    if counts.get("cycles") and counts.get("instructions"):
        told.append(f"{significant(counts['instructions'] / counts['cycles'])} instructions a cycle")
    return ", ".join(told)
