"""What the user asks of a sweep, and what is measured under which name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.cells import LEAST_ROUNDS, Cell
from bench.comparison import LEAST_CHANGE
from bench.run_folder import RUNS
from cplab.variant import Variant

#: ``random`` shuffles every round; ``abba`` turns the order round every time, which cancels a steady drift exactly.
Order = Literal["random", "abba"]

BASELINE = "recompute_f16"
BUDGET_S, QUICK_BUDGET_S = 240.0, 75.0


@dataclass(frozen=True, slots=True)
class Contender:
    """What is measured under a name: a variant of this tree or of another one.

    Attributes:
        name: as it stands in records; the variant's own, or ``kv_bf16@HEAD~3``.
        variant: the implementation.
        tree: the source tree whose code runs, or None for the one that we run from.
        revision: the commit of that tree, "" for our own.
        source_digest: of all that it is made of (`bench.sources`).
    """

    name: str
    variant: Variant
    tree: Path | None = None
    revision: str = ""
    source_digest: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cells to be compared, and how much of a change counts."""

    a: Cell
    b: Cell
    least_change: float = LEAST_CHANGE


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        model: a path or a name.
        contenders: what is measured, in order.
        threads: thread counts, or None for the machine's own list.
        everything: all variants at all thread counts, without a budget.
        rounds: how many, or None for as many as the cells need and fit (at least LEAST_ROUNDS).
        frames: timed frames a worker, or None for as many as fit.
        budget_s: seconds from the first gate to the last round.
        least_rounds: how few rounds may do where time is short.
        quick: fewer cells.
        out: folder for runs.
        golden: a golden file, or "" for the model's own.
        variant_files: Python files with variants that are not installed.
        seed: of the shuffle.
        write: write a run folder.
        timeout_s: seconds after which a worker counts as hung.
        order: of the cells within rounds.
        aa: measure the fastest cell twice, to learn the noise of the run.
        soak_s: seconds of frames of the fastest cell after the rounds, or None.
        pair: two cells that the run is there to compare.
        roofline: measure the machine's roofline before the rounds, for the thread counts that are timed.
        profile: profile the fastest cell after the rounds.
        talker: a talker's file or seeded name, "" for the model's own, None where the run asks for none.
        batches: frames at once, above 1, that are timed beside single ones.
        no_talker: the user wants none, which the report then says.
        left_out: lines on what is not measured for reasons that the caller knows.
    """

    model: str
    contenders: list[Contender]
    threads: list[int] | None = None
    everything: bool = False
    rounds: int | None = None
    frames: int | None = None
    budget_s: float = BUDGET_S
    least_rounds: int = LEAST_ROUNDS
    quick: bool = False
    out: Path = RUNS
    golden: str = ""
    variant_files: list[str] = field(default_factory=list)
    seed: int = 0
    write: bool = True
    timeout_s: float | None = None
    order: Order = "random"
    aa: bool = False
    soak_s: float | None = None
    pair: Pair | None = None
    roofline: bool = False
    profile: bool = False
    talker: str | None = None
    batches: list[int] = field(default_factory=list)
    no_talker: bool = False
    left_out: list[str] = field(default_factory=list)
