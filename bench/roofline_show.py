"""The roofline on the terminal: ``python -m bench roofline``."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from bench import machine
from bench.records import BandwidthPoint, Roofline, TeamRoof
from bench.roofline import measured_roofline
from cplab.commandline import GATE_FAILED, GOOD, console
from cplab.cpus import allowed_cpus


def measure_and_show(threads: list[int] | None, json: Path | None) -> int:
    """Measure, print, and write where wanted; the exit code.

    Args:
        threads: team sizes, or None for those of the machine's own list that are not oversubscribed.
        json: a file to write, or None.
    """
    counts = threads
    if counts is None:
        listed, reason = machine.thread_list()
        counts = [count for count in listed if count <= allowed_cpus()]
        console.print(f"threads: {', '.join(map(str, counts))} ({reason})", highlight=False, markup=False)
    with console.status("roofline") as status:
        found = measured_roofline(
            machine.facts(Path.cwd()), counts, lambda what: status.update(f"roofline, {what}, some seconds")
        )
    print_roofline(found)
    if json is not None:
        json.write_text(found.model_dump_json(by_alias=True, indent=1) + "\n", encoding="utf-8")
    return GOOD if any(team.bandwidth or team.peaks for team in found.teams) else GATE_FAILED


def print_roofline(roofline: Roofline) -> None:
    """Bandwidth by size and thread count, then the peaks."""
    teams = [team for team in roofline.teams if team.bandwidth]
    if teams:
        console.print(_bandwidth_table(teams))
        console.print("GB/s of reads: the median of the best of several prefetch distances", style="dim")
    peaks = [(team, peak) for team in roofline.teams for peak in team.peaks]
    if peaks:
        table = Table(box=None, pad_edge=False)
        for heading in ("peak of", "instruction set"):
            table.add_column(heading, no_wrap=True)
        for heading in ("threads", "GMAC/s"):
            table.add_column(heading, justify="right", no_wrap=True)
        for team, peak in peaks:
            table.add_row(peak.kind, peak.instruction_set, str(team.threads), f"{peak.gmacs:.1f}")
        console.print()
        console.print(table)
    for team in roofline.teams:
        if team.reason:
            console.print(f"{team.threads} threads: {team.reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"measured in {roofline.elapsed_s:.0f} s", style="dim", highlight=False)


def _bandwidth_table(teams: list[TeamRoof]) -> Table:
    by_size: dict[int, dict[int, BandwidthPoint]] = {}
    for team in teams:
        for point in team.bandwidth:
            by_size.setdefault(point.bytes, {})[team.threads] = point
    table = Table(box=None, pad_edge=False)
    table.add_column("working set", justify="right", no_wrap=True)
    for team in teams:
        table.add_column(f"{team.threads} thr.", justify="right", no_wrap=True)
        table.add_column("in", no_wrap=True)
    for size in sorted(by_size):
        row = [f"{size / 2**20:.2f} MiB"]
        for team in teams:
            found = by_size[size].get(team.threads)
            row += ["-", ""] if found is None else [f"{found.gbps:.1f}", found.level or ""]
        table.add_row(*row)
    return table
