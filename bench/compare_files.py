"""``bench compare RUN RUN``: cells that two runs have in common.

Two runs are not interleaved, so no round of one pairs with a round of the other, and between them the machine may have
become another. What stands still is each run's own baseline. Where both have the same one, of the same sources, cells
are compared by their speed beside it, which cancels what the machine did. Where they have not, times themselves are
compared, and that is said. Of different machines nothing is judged: beside each other stand their speeds over their own
baselines, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.compared import Compared, ComparedCell
from bench.comparison import compare_apart
from bench.errors import ComparisonError
from bench.records import CellSummary, Comparison, Summary, UnreadableRecordError
from bench.run_reading import read_run
from bench.stats import paired_logs
from bench.timed_rounds import Key
from reports.wording import milliseconds

_BY_BASELINE = "each cell beside the baseline of its own run, since the two runs were not interleaved"
_BY_TIME = (
    "times of two runs that were not interleaved: what the machine did between them is in the ratio; "
    "bench compare NAME@REV NAME measures both in one run"
)


@dataclass(frozen=True, slots=True)
class _Side:
    """A run's timed cells, their samples by round in any one unit, and its baseline's cell."""

    label: str
    summary: Summary
    rounds: Mapping[Key, Mapping[int, Sequence[float]]]
    cells: Mapping[Key, CellSummary]
    baseline: Key | None

    @property
    def noise(self) -> float | None:
        """A/A noise of the run."""
        return self.summary.repeatability.noise if self.summary.repeatability else None


def compare_files(a: Path, b: Path, least_change: float) -> Compared:
    """Compare the cells that two runs have in common.

    Args:
        a: what B is compared with: a run's folder, its ``summary.json`` or its ``records.jsonl``.
        b: what is judged.
        least_change: the share that a change must exceed.

    Raises:
        ComparisonError: one cannot be read.
    """
    left, right = _side(a), _side(b)
    if not _same_model(left.summary, right.summary):
        names = f"{left.summary.model.name} and {right.summary.model.name}"
        return Compared(str(a), str(b), "none", [], [f"two models, {names}: their times say nothing about each other"])
    common = [key for key in left.cells if key in right.cells]
    if not common:
        return Compared(str(a), str(b), "none", [], ["the two runs have no timed cell in common"])
    if not _same_machine(left.summary, right.summary):
        return _apart(left, right, common)
    by_baseline = left.baseline is not None and left.baseline == right.baseline and _same_sources(left, right)
    noise = max((side.noise for side in (left, right) if side.noise is not None), default=None)
    rows, notes = [], []
    for key in common:
        if by_baseline and key == left.baseline:
            notes.append(f"baseline {_name(key)}: {_ms(left, key)} ms in A, {_ms(right, key)} ms in B")
            continue
        found = _judge(left, right, key, by_baseline, least_change, noise)
        rows.append(ComparedCell(_name(key), left.cells[key].cp_ms, right.cells[key].cp_ms, found))
    return Compared(left.label, right.label, "ms a frame", rows, notes)


def _judge(
    left: _Side, right: _Side, key: Key, by_baseline: bool, least_change: float, noise: float | None
) -> Comparison:
    return compare_apart(
        f"{_name(key)} in {left.label}",
        f"{_name(key)} in {right.label}",
        _logs(left, key, by_baseline),
        _logs(right, key, by_baseline),
        least_change=least_change,
        noise=noise,
        note=_BY_BASELINE if by_baseline else _BY_TIME,
    )


def _logs(side: _Side, key: Key, by_baseline: bool) -> NDArray[np.float64]:
    """A logarithm a round: of the cell's time, or of its time over the baseline's in the same round."""
    rounds = side.rounds[key]
    if by_baseline and side.baseline is not None:
        return paired_logs(rounds, side.rounds[side.baseline])
    return np.array([np.log(np.median(samples)) for samples in rounds.values()])


def _apart(left: _Side, right: _Side, common: list[Key]) -> Compared:
    """Two machines: speeds over their own baselines, nothing judged."""
    rows = [
        ComparedCell(_name(key), left.cells[key].speedup_vs_baseline, right.cells[key].speedup_vs_baseline, None)
        for key in common
    ]
    notes = ["the runs are of different machines: only what each says of its own baseline stands side by side"]
    if left.summary.baseline != right.summary.baseline:
        notes.append(f"and their baselines differ: {left.summary.baseline}, {right.summary.baseline}")
    return Compared(left.label, right.label, f"speed over its own run's {left.summary.baseline}", rows, notes)


def _side(path: Path) -> _Side:
    try:
        summary, rounds = read_run(path)
    except UnreadableRecordError as error:
        raise ComparisonError(str(error)) from error
    cells = {(cell.variant, cell.threads): cell for cell in summary.cells if cell.cp_ms and cell.gate == "pass"}
    cells = {key: cell for key, cell in cells.items() if rounds.get(key)}
    of_baseline = [(cell.cp_ms.p50, key) for key, cell in cells.items() if key[0] == summary.baseline and cell.cp_ms]
    return _Side(str(path), summary, rounds, cells, min(of_baseline)[1] if of_baseline else None)


def _same_sources(left: _Side, right: _Side) -> bool:
    """Whether the two runs' baselines are made of the same; unknown, in runs of older versions, is no."""
    digests = [side.cells[side.baseline].source_digest if side.baseline else "" for side in (left, right)]
    return bool(digests[0]) and digests[0] == digests[1]


def _same_model(left: Summary, right: Summary) -> bool:
    digests = (left.model.digest, right.model.digest)
    return digests[0] == digests[1] if all(digests) else left.model.name == right.model.name


def _same_machine(left: Summary, right: Summary) -> bool:
    return _machine(left) is not None and _machine(left) == _machine(right)


def _machine(summary: Summary) -> tuple[object, ...] | None:
    """What tells one machine from another as far as a record says; None where it does not tell its CPU."""
    cpu, memory = summary.machine.get("cpu"), summary.machine.get("memory")
    if not isinstance(cpu, dict) or not cpu.get("model"):
        return None
    total = memory.get("total_bytes") if isinstance(memory, dict) else None
    gigabytes = round(total / 2**30) if isinstance(total, int) else None
    return (*(cpu.get(name) for name in ("model", "arch", "physical", "logical", "board")), gigabytes)


def _name(key: Key) -> str:
    return f"{key[0]} x {key[1]}"


def _ms(side: _Side, key: Key) -> str:
    return milliseconds(side.cells[key].cp_ms)
