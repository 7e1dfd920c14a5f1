"""Which cells a sweep measures, and how long each gets.

The default answers three questions within a time budget: which variant is fastest at its best thread count, how the
fastest exact one scales with threads, and what one thread gives. So every variant is first gated at the number of
physical cores; the fastest exact one is tried at every thread count; where another count suits it better, the others
are tried there too. Rivals, which need an extra, come after the lab's own and only where the budget holds; what is left
of it goes to single-thread cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.records import CellRecord
from cplab.variant import Variant

#: A default sweep measures at most this many cells, each in at least this many rounds.
MOST_CELLS = 12
LEAST_ROUNDS = 6
LEAST_FRAMES, MOST_FRAMES = 3, 24
#: Two variants whose rough times differ by less may turn out either way round.
CLOSE = 1.15
#: Starting Python, importing numba and packing weights, until a run has measured its own.
WORKER_OVERHEAD_S = 2.0
#: How much more time than estimated is wanted before another cell is taken in.
SLACK = 1.2


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """A variant with a thread count, and how many frames of different utterances it gets at once."""

    variant: str
    threads: int
    batch: int = 1

    def __str__(self) -> str:
        name = f"{self.variant} x {self.threads}"
        return name if self.batch == 1 else f"{name}, {self.batch} frames at once"

    @property
    def single(self) -> Cell:
        """The same, one frame at a time."""
        return Cell(self.variant, self.threads)


Gate = Callable[[Cell], CellRecord]


@dataclass(slots=True)
class Chosen:
    """Cells to measure, in the order in which they were gated, and what was left out."""

    gated: dict[Cell, CellRecord]
    left_out: list[str]

    def passing(self) -> list[Cell]:
        """Cells that may be timed."""
        return [cell for cell, record in self.gated.items() if record.gate.status == "pass"]

    def prefetch_bytes(self) -> dict[str, int]:
        """How far ahead each cell prefetches, where it does, by its name."""
        found = {str(cell): record.facts.get("prefetch_bytes") for cell, record in self.gated.items()}
        return {name: ahead for name, ahead in found.items() if ahead}


def every_cell(variants: Iterable[Variant], threads: list[int], gate: Gate) -> Chosen:
    """All variants at all thread counts."""
    cells = [Cell(variant.name, count) for variant in variants for count in threads]
    return Chosen({cell: gate(cell) for cell in cells}, [])


def default_cells(
    variants: list[Variant],
    threads: list[int],
    physical: int,
    gate: Gate,
    *,
    remaining_s: Callable[[], float],
    rounds: int,
    quick: bool = False,
) -> Chosen:
    """The default choice; see the module's docstring.

    Args:
        variants: in the order in which they shall stand.
        threads: candidate thread counts.
        physical: physical cores that may be used; one of ``threads``, or the largest below is taken.
        gate: judges a cell and times it roughly (`quick_ms`).
        remaining_s: time that is left for gates and rounds; what the answers need is measured whatever it says.
        rounds: how many rounds it must be enough for.
        quick: only the variants at their home count, and the fastest exact one below it where that fits.
    """
    home = max((count for count in threads if count <= physical), default=min(threads))
    chosen = Chosen({}, [])
    own = [variant for variant in variants if not variant.extra] or variants
    rivals = [variant for variant in variants if variant not in own]

    def full() -> bool:
        return sum(record.gate.status != "skip" for record in chosen.gated.values()) >= MOST_CELLS

    def add(cell: Cell) -> None:
        if cell not in chosen.gated and not full():
            chosen.gated[cell] = gate(cell)

    def add_if_it_fits(cell: Cell, guess_ms: float) -> None:
        if cell in chosen.gated:
            return
        times = [guess_ms, *(quick_ms(chosen.gated[c]) for c in chosen.passing())]
        need_s = SLACK * rounds * sum(worker_seconds(ms, LEAST_FRAMES) for ms in times)
        if need_s > remaining_s() or full():
            chosen.left_out.append(f"{cell}: not within the time budget (--all measures everything)")
        else:
            add(cell)

    def add_rivals(count: int) -> None:
        lacking: dict[str, str] = {}
        for rival in rivals:
            cell = Cell(rival.name, count)
            if rival.extra in lacking:
                chosen.left_out.append(f"{cell}: {lacking[rival.extra]}")
                continue
            add_if_it_fits(cell, max((quick_ms(chosen.gated[c]) for c in chosen.passing()), default=0.0))
            if cell in chosen.gated and chosen.gated[cell].gate.status == "skip":
                lacking[rival.extra] = chosen.gated[cell].gate.detail

    for variant in own:
        add(Cell(variant.name, home))
    exact = {variant.name for variant in variants if variant.tier == "exact" and variant.arithmetic == "f32"}
    lossless = [cell for cell in chosen.passing() if not chosen.gated[cell].facts.get("lossy_weights")]
    leaders = _leaders([cell for cell in lossless if cell.variant in exact], chosen.gated)
    best = home
    for leader in leaders[:1]:
        if quick:
            for count in (count for count in threads if count < home):
                add_if_it_fits(Cell(leader, count), quick_ms(chosen.gated[Cell(leader, home)]) * home / count)
            add_rivals(home)
            return chosen
        for count in threads:
            add(Cell(leader, count))
        tried = [cell for cell in chosen.passing() if cell.variant == leader]
        best = min(tried, key=lambda cell: quick_ms(chosen.gated[cell])).threads
        for cell in chosen.passing():
            add(Cell(cell.variant, best))
    add_rivals(best)
    for runner_up in leaders[1:]:
        for count in threads:
            add_if_it_fits(Cell(runner_up, count), quick_ms(chosen.gated[Cell(runner_up, home)]))
    for cell in sorted(chosen.passing(), key=lambda c: quick_ms(chosen.gated[c])):
        # One thread takes about as many times longer as there are threads.
        add_if_it_fits(Cell(cell.variant, min(threads)), quick_ms(chosen.gated[cell]) * cell.threads / min(threads))
    return chosen


def _leaders(cells: list[Cell], gated: dict[Cell, CellRecord]) -> list[str]:
    """The fastest variant by the gate's rough times, and one more where the two are too close to tell apart."""
    ranked = sorted(cells, key=lambda cell: quick_ms(gated[cell]))
    return [cell.variant for cell in ranked[:2] if quick_ms(gated[cell]) <= CLOSE * quick_ms(gated[ranked[0]])]


def leading_cell(chosen: Chosen, variants: Iterable[Variant]) -> Cell | None:
    """The cell that the gate's rough times have in front: of those that will be called exact, else of all; or None."""
    exact = {variant.name for variant in variants if variant.tier == "exact" and variant.arithmetic == "f32"}
    passing = chosen.passing()
    # Threads that wait for a CPU tell of the scheduler, and the noise of such a cell is nobody else's.
    passing = [cell for cell in passing if not chosen.gated[cell].oversubscribed] or passing
    lossless = [c for c in passing if c.variant in exact and not chosen.gated[c].facts.get("lossy_weights")]
    return min(lossless or passing, key=lambda cell: quick_ms(chosen.gated[cell]), default=None)


def quick_ms(record: CellRecord) -> float:
    """A rough time a frame from the gate's worker: the least of its few calls, in milliseconds."""
    return min(record.warmup_ns, default=0) / 1e6


def worker_seconds(frame_ms: float, frames: int, overhead_s: float = WORKER_OVERHEAD_S) -> float:
    """What a timed worker takes: its start, a first call, a warm-up, the timed frames and two readings."""
    return overhead_s + (frames + 4) * frame_ms / 1000


def frames_for(frame_ms: float, seconds: float, overhead_s: float) -> int:
    """How many frames fit into a worker of so many seconds."""
    if frame_ms <= 0:
        return LEAST_FRAMES
    fit = int((seconds - overhead_s) * 1000 / frame_ms) - 4
    return max(LEAST_FRAMES, min(MOST_FRAMES, fit))
