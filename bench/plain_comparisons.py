"""Each exact cell of a run beside the plain cached ones that have its bits: what fewer bytes are worth.

Compared are cells of one run and one thread count, round by round, by the rules of `bench.comparison`. Bits are equal
where the law is, so that nothing but time is left to compare.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.compare_cells import compare_within
from bench.records import PLAIN_VARIANTS, CellRecord, CellSummary, Comparison


def plain_comparisons(
    records: Sequence[CellRecord], cells: Sequence[CellSummary], noise: float | None = None
) -> list[Comparison]:
    """Every timed cell beside those of `PLAIN_VARIANTS` and the plain decoder of its own format that have its bits.

    Args:
        records: of the run.
        cells: what they came to.
        noise: the run's A/A noise, where it was measured.
    """
    timed = {(cell.variant, cell.threads): cell for cell in cells if cell.tier != "codes" and cell.cp_ms is not None}
    found = []
    for (variant, threads), cell in timed.items():
        for name in dict.fromkeys((*PLAIN_VARIANTS, f"kv_{cell.format}")):
            plain = timed.get((name, threads))
            if plain is None or name == variant or not _same_bits(plain, cell):
                continue
            one = compare_within(records, (name, threads), (variant, threads), noise=noise)
            found += [one] if one else []
    return found


def _same_bits(a: CellSummary, b: CellSummary) -> bool:
    """One law on the same weights: both are called exact, or one format has changed the weights of both alike."""
    return a.arithmetic == b.arithmetic and ((a.exact and b.exact) or a.format == b.format)
