"""Each other engine's cell of a run beside the lab's own: the same thing done by another's code, round by round.

Compared are cells of one run and one thread count, by the rules of `bench.comparison`. Bits need not be equal: what
each cell's are stands beside its time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bench.compare_cells import compare_within
from bench.records import CellRecord, CellSummary, Comparison
from cplab.external.naming import PREFIX


def engine_comparisons(
    records: Sequence[CellRecord],
    cells: Sequence[CellSummary],
    engines: Collection[str],
    noise: float | None = None,
) -> list[Comparison]:
    """Every timed cell of another engine (``a``) beside the lab's own of the same threads (``b``).

    These are the variant of the same name without the engine's prefix (``kv_q4_0`` for ``llama_kv_q4_0``), or, where
    that has no time, the cached one of the same format; then the fastest exact one, where it is another.

    Args:
        records: of the run.
        cells: what they came to.
        engines: names of the variants that run on another engine; all others are the lab's own.
        noise: the run's A/A noise, where it was measured.

    Returns:
        By the engine's variant, then by threads.
    """
    timed = [cell for cell in cells if cell.cp_ms is not None]
    theirs = sorted((cell for cell in timed if cell.variant in engines), key=lambda cell: (cell.variant, cell.threads))
    found = []
    for cell in theirs:
        own = [one for one in timed if one.variant not in engines and one.threads == cell.threads]
        partners = [one for one in (_counterpart(cell, own), _fastest_exact(own)) if one is not None]
        for name in dict.fromkeys(one.variant for one in partners):
            one = compare_within(records, (cell.variant, cell.threads), (name, cell.threads), noise=noise)
            found += [one] if one else []
    return found


def _counterpart(cell: CellSummary, own: Sequence[CellSummary]) -> CellSummary | None:
    by_name = {one.variant: one for one in own}
    brought = cell.variant.startswith(PREFIX)  # by the user, under any name
    without_prefix = "" if brought else cell.variant.partition("_")[2]
    return by_name.get(without_prefix) or by_name.get(f"kv_{cell.format}")


def _fastest_exact(own: Sequence[CellSummary]) -> CellSummary | None:
    exact = [(one.cp_ms.p50, one) for one in own if one.exact and one.cp_ms is not None]
    return min(exact, key=lambda entry: entry[0], default=(0.0, None))[1]
