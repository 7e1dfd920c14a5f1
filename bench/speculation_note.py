"""What became of a speculative cell's drafts, over all its timed records, in one line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.records import CellRecord


def speculation_note(timed: Sequence[CellRecord]) -> str:
    """``2.31 codes a pass, 6.5 passes a frame; drafts held, by codebook from 2 on: 0.74 0.71 ...``, or "".

    Frames in which draft lengths are learnt count too: every timed worker is a process that begins to learn anew.
    """
    told = [facts for record in timed if (facts := record.facts.get("speculation")) and facts["frames"]]
    if not told:
        return ""
    frames = sum(facts["frames"] for facts in told)
    passes = sum(facts["passes_per_frame"] * facts["frames"] for facts in told)
    asked, held = (np.sum([facts[name] for facts in told], axis=0) for name in ("asked", "held"))
    shares = " ".join(f"{h / a:.2f}" if a else "-" for h, a in zip(held[1:], asked[1:], strict=True))
    codes = frames * len(asked) / passes
    return (
        f"{codes:.2f} codes a pass, {passes / frames:.1f} passes a frame; drafts held, by codebook from 2 on: {shares}"
    )
