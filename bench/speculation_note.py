"""What became of a speculative cell's drafts, over all its timed records, in one line."""

from __future__ import annotations

from collections.abc import Sequence

from bench.records import CellRecord, draft_counts


def speculation_note(timed: Sequence[CellRecord]) -> str:
    """``2.31 codes a pass, 6.5 passes a frame; drafts held, by codebook from 2 on: 0.74 0.71 ...``, or "".

    Heads cannot tell the first code of a frame, a drafting model can.
    """
    found = draft_counts(timed)
    if found is None:
        return ""
    shares = " ".join("-" if share is None else f"{share:.2f}" for share in found.acceptance[found.first :])
    return (
        f"{found.codes_per_pass:.2f} codes a pass, {found.passes_per_frame:.1f} passes a frame; "
        f"drafts held, by codebook from {found.first + 1} on: {shares}"
    )
