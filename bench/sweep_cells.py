"""Which of the ways to choose cells a sweep takes: as a killed run had it, as asked for, or the default choice."""

from __future__ import annotations

from collections.abc import Callable

from bench.cells import Cell, Chosen, Gate, default_cells, every_cell
from bench.options import Options
from bench.plan import Plan


def cells_of(
    options: Options, plan: Plan, gate: Gate, *, physical: int, remaining_s: Callable[[], float], rounds: int
) -> Chosen:
    """Gate the cells of a sweep.

    Args:
        options: what was asked for.
        plan: the run's; one that is gone on with has its cells already.
        gate: judges a cell.
        physical: cores that may be used.
        remaining_s: time that is left for gates and rounds of single frames.
        rounds: how many it must be enough for.
    """
    variants = [contender.variant for contender in options.contenders]
    if plan.cells is not None:
        cells = [Cell(name, threads) for name, threads in plan.cells]
        return Chosen({cell: gate(cell) for cell in cells}, list(plan.left_out))
    if options.pair is not None:
        return Chosen({cell: gate(cell) for cell in (options.pair.a, options.pair.b)}, [])
    if options.everything or options.threads is not None:
        return every_cell(variants, plan.threads, gate)
    return default_cells(
        variants, plan.threads, physical, gate, remaining_s=remaining_s, rounds=rounds, quick=options.quick
    )
