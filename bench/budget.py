"""How a sweep spends its time: how many rounds, and how many frames a worker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median

from bench.cells import LEAST_ROUNDS, WORKER_OVERHEAD_S, frames_for
from bench.records import CellRecord

#: Kept back from the budget for cells that must be measured again, and for writing.
RESERVE_S = 10.0
MOST_ROUNDS = 30
#: Seconds of a worker where there is no budget to share out.
UNHURRIED_S = 4.0


@dataclass(slots=True)
class Budget:
    """Time from the first gate to the last round.

    Attributes:
        seconds: the whole; None for no limit, which means exactly the rounds asked for, or the least.
        rounds: how many, or None for as many as fit.
        frames: timed frames a worker, or None for as many as fit.
        least_rounds: done even where the time is up.
    """

    seconds: float | None
    rounds: int | None = None
    frames: int | None = None
    least_rounds: int = LEAST_ROUNDS
    _began: float = 0.0
    _slowest_round_s: float = 0.0
    _overheads_s: list[float] = field(default_factory=list)

    def begin(self, spent_s: float = 0.0) -> None:
        """The clock starts; ``spent_s`` seconds of it went by in a process that was killed."""
        self._began = time.monotonic() - spent_s

    def elapsed_s(self) -> float:
        """Seconds since `begin`."""
        return time.monotonic() - self._began

    def remaining_s(self) -> float:
        """Seconds left for gates and rounds; negative where it is over, infinite without a limit."""
        return float("inf") if self.seconds is None else self.seconds - RESERVE_S - self.elapsed_s()

    @property
    def wanted_rounds(self) -> int:
        """Rounds that must be possible."""
        return self.rounds or self.least_rounds

    def another_round(self, done: int) -> bool:
        """Whether to begin one more after ``done``."""
        if self.rounds is not None or self.seconds is None or done < self.least_rounds:
            return done < self.wanted_rounds
        return done < MOST_ROUNDS and self._slowest_round_s < self.remaining_s()

    def rounds_left(self, done: int) -> int:
        """How many rounds are still to come, this one included, as far as can be told: for the progress bar."""
        if self.rounds is not None or self.seconds is None or not self._slowest_round_s:
            return max(1, self.wanted_rounds - done)
        return max(1, self.least_rounds - done, int(self.remaining_s() / self._slowest_round_s))

    def round_took(self, seconds: float) -> None:
        """A round is over."""
        self._slowest_round_s = max(self._slowest_round_s, seconds)

    def worker_took(self, seconds: float, record: CellRecord) -> None:
        """A timed worker is over; what it did beside calls and readings is overhead."""
        calls = sum(record.samples_ns) + sum(record.warmup_ns) + (record.first_call_ns or 0)
        self._overheads_s.append(seconds - (calls + sum(sample.ns for sample in record.roof)) / 1e9)

    def frames_of(self, frame_ms: float, cells: int, done: int) -> int:
        """Timed frames of a worker: as asked, or what its share of the remaining time has room for.

        Args:
            frame_ms: about how long a frame of the cell takes.
            cells: how many share the time in every round.
            done: rounds that are over.
        """
        if self.frames is not None:
            return self.frames
        overhead_s = median(self._overheads_s) if self._overheads_s else WORKER_OVERHEAD_S
        rounds = max(1, self.wanted_rounds - done)
        share_s = UNHURRIED_S if self.seconds is None else max(0.0, self.remaining_s()) / (rounds * cells)
        return frames_for(frame_ms, share_s, overhead_s)
