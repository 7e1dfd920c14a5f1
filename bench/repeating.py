"""Measuring a disturbed cell once more: when, and when to give it up.

What decides is what the machine did meanwhile (`bench.cell_conditions.disturbance`), never the times themselves: a
measurement that was repeated for being slow would make every cell look faster than it is. Both measurements stay, in
the same round.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.records import CellRecord

#: So many repeats in a row as disturbed as what they repeat: the machine is busy for good, and time is better spent
#: on further rounds.
IN_VAIN = 3


@dataclass(slots=True)
class Repeats:
    """What has come of repeating in one run."""

    in_vain: int = 0

    def wanted(self, record: CellRecord) -> bool:
        """Whether a measurement should be made once more."""
        timed = record.phase in ("timed", "talker") and record.gate.status == "pass"
        return timed and bool(record.facts.get("disturbed")) and self.in_vain < IN_VAIN

    def made(self, first: CellRecord, again: CellRecord) -> CellRecord:
        """The record of a repeat, with what it repeats; counts whether it helped."""
        self.in_vain = self.in_vain + 1 if again.facts.get("disturbed") else 0
        return again.model_copy(update={"facts": {**again.facts, "again_for": first.facts["disturbed"]}})


def disturbed_rounds(timed: list[CellRecord]) -> list[str]:
    """A line for each marked measurement of a cell, in order: ``round 3: 12% of CPU time stolen by other guests``."""
    return [
        f"round {record.round + 1}{' again' if record.facts.get('again_for') else ''}: {record.facts['disturbed']}"
        for record in timed
        if record.facts.get("disturbed")
    ]
