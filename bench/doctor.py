"""Grades machine facts: which of them make a figure doubtful, and what a person can do. Changes nothing.

Every check reads plain data (`bench.machine.facts`, or a test's made-up machine) and returns a verdict, or None
where the machine does not tell; what is not told is listed at the end instead of being called good.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from bench import doctor_software
from bench.doctor_hardware import HARDWARE_CHECKS
from bench.doctor_software import SOFTWARE_CHECKS
from bench.doctor_state import STATE_CHECKS
from bench.verdict import Facts, Grade

_COLOURS = {"good": "green", "risky": "yellow", "bad": "bold red"}


@dataclass(frozen=True)
class Finding:
    """One graded fact: what was found and, unless it is simply good, one line of advice."""

    topic: str
    grade: Grade
    found: str
    advice: str = ""


def examine(facts: Facts, threading_layer: str | None = None) -> list[Finding]:
    """Grade a machine.

    Args:
        facts: what `bench.machine.facts` returns; missing groups and None are taken as "does not tell".
        threading_layer: numba's, where a process that has run a parallel kernel knows it.

    Returns:
        A finding for each topic that could be checked, and a last one that names those that could not.
    """
    checks = HARDWARE_CHECKS | STATE_CHECKS | SOFTWARE_CHECKS
    verdicts = {topic: check(facts) for topic, check in checks.items()}
    verdicts["threading layer"] = doctor_software.threading_layer(threading_layer)
    findings = [Finding(topic, *verdict) for topic, verdict in verdicts.items() if verdict]
    untold = [topic for topic, verdict in verdicts.items() if not verdict]
    if untold:
        findings.append(Finding("not checked", "risky", ", ".join(untold), "this machine does not tell, nobody judged"))
    return findings


def render(findings: list[Finding]) -> Table:
    """The findings as a table, in the order given."""
    table = Table("grade", "topic", "found", "advice", title="Is this machine fit to measure on?")
    for finding in findings:
        grade = Text(finding.grade, style=_COLOURS[finding.grade])
        table.add_row(grade, finding.topic, Text(finding.found), Text(finding.advice))
    return table
