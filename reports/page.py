"""Everything that a report says, before it is HTML or Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bench.records import (
    PROFILE_FILE,
    ROOFLINE_FILE,
    SPECULATION_FILE,
    STREAMS_FILE,
    CellRecord,
    Profile,
    Roofline,
    Speculation,
    Streams,
    Summary,
    read_profile,
    read_records,
    read_roofline,
    read_speculation,
    read_streams,
    read_summary,
)
from reports import facts
from reports.beside_engines import BesideEngines, beside_engines
from reports.gates import GateRow, gate_rows
from reports.profile_words import without_profile
from reports.same_bits import SameBits, same_bits
from reports.tables import Column, Row, columns, gate_outcomes, rows
from reports.talker_and_cp import steps, talker_sentences
from reports.verdict import Verdict, judge
from reports.wording import one_line

HOW_TO_READ = (
    "A time is the median over rounds of each round's median; brackets hold its 95 % bootstrap interval over rounds.",
    "Cells were measured interleaved in one run, so ratios within the run mean something; absolute times of different "
    "machines, or of one machine on different days, do not compare.",
    "A cell has a time only where its gate passed: what was timed is what was right.",
    "Exact says that the output has the same bits as the model's own arithmetic. Fidelity says how many codes another "
    "arithmetic shares with it. They are two things: no fidelity makes a variant exact.",
    "Figures from another machine are marked so, and are no target that this machine was measured against.",
)


@dataclass(frozen=True, slots=True)
class Page:
    """One run, put into words and rows; no markup yet."""

    title: str
    subtitle: str
    summary: Summary
    verdict: Verdict
    columns: list[Column]
    rows: list[Row]
    gates: list[GateRow]
    machine: list[facts.Group]
    reproduction: list[tuple[str, str]]
    not_measured: list[str]
    reference: list[tuple[str, str, str, str, str]]
    steps: list[tuple[str, ...]]
    talker: list[str]
    roof: str
    records: list[CellRecord] = field(default_factory=list)
    roofline: Roofline | None = None
    profile: Profile | None = None
    without_profile: str = ""
    streams: Streams | None = None
    same_bits: SameBits | None = None
    beside_engines: BesideEngines | None = None
    how_to_read: tuple[str, ...] = HOW_TO_READ


def read_page(run_dir: Path) -> Page:
    """Read a run folder.

    Raises:
        bench.records.UnreadableRecordError: ``summary.json`` or ``records.jsonl`` is missing, or a file cannot be read.
    """
    return make_page(
        read_summary(run_dir / "summary.json"),
        read_records(run_dir / "records.jsonl"),
        read_roofline(run_dir / ROOFLINE_FILE),
        read_profile(run_dir / PROFILE_FILE),
        read_streams(run_dir / STREAMS_FILE),
        read_speculation(run_dir / SPECULATION_FILE),
    )


def make_page(
    summary: Summary,
    records: list[CellRecord],
    roofline: Roofline | None = None,
    profile: Profile | None = None,
    streams: Streams | None = None,
    speculation: Speculation | None = None,
) -> Page:
    """Put a run into words and rows."""
    outcomes = gate_outcomes(records)
    subtitle = [
        facts.machine_name(summary.machine),
        one_line(summary.model.name, 120),
        one_line(summary.run.started_utc, 40),
        f"commit {one_line(summary.run.commit, 40)}{' (with uncommitted changes)' if summary.run.dirty else ''}",
    ]
    return Page(
        title="How fast is the Qwen3-TTS code predictor here, and is it right?",
        subtitle=" · ".join(part for part in subtitle if part),
        summary=summary,
        verdict=judge(summary),
        columns=columns(summary),
        rows=rows(summary, outcomes),
        gates=gate_rows(summary, outcomes),
        machine=facts.machine_groups(summary.machine),
        reproduction=facts.reproduction(
            summary, sum(len(record.samples_ns) for record in records if record.phase != "talker")
        ),
        not_measured=facts.not_measured(summary),
        reference=facts.reference_rows(summary),
        steps=[step.row for step in steps(summary)],
        talker=talker_sentences(summary),
        roof=facts.roof_sentence(summary),
        records=records,
        roofline=roofline,
        profile=profile,
        without_profile=without_profile(summary, records),
        streams=streams,
        same_bits=same_bits(summary, records, speculation),
        beside_engines=beside_engines(summary),
    )
