"""Machine facts as readable groups, and how to make a run again. The machine's dictionary may hold anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.records import CellSummary, Summary
from reports.tables import in_order, why_no_times
from reports.verdict import describe
from reports.wording import NOTHING, clip, one_line, plural, significant

FACTS_LIMIT = 400
"""Machine facts that a report shows; all of them stand in ``machine.json``."""


@dataclass(frozen=True, slots=True)
class Group:
    """Facts under one heading: (name, value) in the order of the record."""

    name: str
    facts: list[tuple[str, str]]


def machine_groups(machine: dict[str, Any], limit: int = FACTS_LIMIT) -> list[Group]:
    """Flatten a machine record: a group for each nested entry, and one for the entries that stand alone."""
    alone: list[tuple[str, str]] = []
    groups: list[Group] = []
    left = limit
    for name, value in machine.items():
        flat = list(_flatten("", value))
        shown = [(clip(key, 200), clip(text)) for key, text in flat[:left]]
        left -= len(shown)
        if len(shown) < len(flat):
            shown.append(("…", f"{plural(len(flat) - len(shown), 'fact')} more, in machine.json"))
        if isinstance(value, dict):
            groups.append(Group(_words(clip(str(name), 200)), shown or [("", "none")]))
        else:
            alone += [(_words(f"{clip(str(name), 200)} {key}".strip()), text) for key, text in shown]
    return ([Group("general", alone)] if alone else []) + groups


def _flatten(prefix: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flatten(f"{prefix} / {_words(str(key))}" if prefix else _words(str(key)), inner)
    elif isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value):
        for number, item in enumerate(value, start=1):
            yield from _flatten(f"{prefix} {number}".strip(), item)
    elif prefix.endswith("bytes") and isinstance(value, int | float | None):
        yield prefix.removesuffix("bytes").rstrip(" /") or "size", _bytes(value)
    else:
        yield prefix, _plain(value)


def _plain(value: object) -> str:
    if value is None or value == "" or value == []:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value)
    return str(value)


def _bytes(count: float | None) -> str:
    if count is None:
        return NOTHING
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{significant(count / size)} {unit}"
    return f"{count:.0f} bytes"


def machine_name(machine: dict[str, Any]) -> str:
    """The CPU's model and how many CPUs the run might use, as far as the record says; else empty."""
    cpu = machine.get("cpu")
    if not isinstance(cpu, dict) or not cpu.get("model"):
        return ""
    allowed = cpu.get("allowed")
    return one_line(str(cpu["model"]), 80) + (f", {plural(allowed, 'CPU')}" if isinstance(allowed, int) else "")


def _words(name: str) -> str:
    return name.replace("_", " ")


def reproduction(summary: Summary, sample_count: int) -> list[tuple[str, str]]:
    """What made the run, beside its command: (name, value)."""
    run = summary.run
    state = " (with uncommitted changes)" if run.dirty else ""
    threads = ", ".join(map(str, run.thread_list)) or NOTHING
    spec = ", ".join(f"{_words(name)} {_plain(value)}" for name, value in summary.model.spec.items())
    facts = [
        ("model", f"{summary.model.name}{' (seeded weights)' if summary.model.synthetic else ''}"),
        ("model digest", summary.model.digest),
        ("dimensions", spec),
        ("seed", str(run.seed)),
        ("rounds", str(run.rounds)),
        ("frames a round", str(run.frames_per_round)),
        ("timed frames kept", f"{sample_count} raw samples in records.jsonl"),
        ("threads", f"{threads} ({run.thread_list_reason})" if run.thread_list_reason else threads),
        ("golden", run.golden),
        ("commit", f"{run.commit}{state}"),
        ("tool version", run.tool_version),
        ("versions", _versions(summary.machine)),
        ("started (UTC)", run.started_utc),
        ("took", f"{significant(run.elapsed_s)} s{', interrupted' if run.interrupted else ''}"),
    ]
    return [(name, one_line(value) or NOTHING) for name, value in facts]


_SOFTWARE = ("python", "numba", "llvmlite", "numpy", "scipy", "llama_cpp_python", "torch")


def _versions(machine: dict[str, Any]) -> str:
    """Interpreter and libraries that bear on times, as far as the record names them."""
    software = machine.get("software")
    if not isinstance(software, dict):
        return ""
    return ", ".join(f"{_words(name)} {_plain(software[name])}" for name in _SOFTWARE if software.get(name))


def not_measured(summary: Summary) -> list[str]:
    """What the run left out and why, skipped cells included."""
    skipped: list[CellSummary] = [cell for cell in in_order(summary.cells) if cell.gate == "skip"]
    return [one_line(text) for text in summary.run.not_measured] + [
        f"{describe(cell)}: {why_no_times(cell)}" for cell in skipped
    ]


def reference_rows(summary: Summary) -> list[tuple[str, str, str, str, str]]:
    """(who, talker ms, CP ms, sum ms, RTF) of the other machine."""
    other = summary.reference
    figures = (other.talker_ms, other.cp_ms, other.talker_ms + other.cp_ms, other.rtf)
    talker, predictor, both, rtf = (significant(figure) for figure in figures)
    return [(f"{one_line(other.name, 200)} (another machine)", talker, predictor, both, rtf)]


def roof_sentence(summary: Summary) -> str:
    """What the roof is, and its speed by thread count where the run says so."""
    known = summary.roof.get("threads", {})
    speeds = ", ".join(
        f"{significant(gbps)} GB/s on {threads} thread{'' if threads == '1' else 's'}"
        for threads, gbps in known.items()
    )
    text = "The roof is the best of several read-only kernels over the same packed bytes, in the same run"
    return f"{text}: {speeds}." if speeds else f"{text}."
