"""Counts of a speculative predictor: acceptance of each codebook, codes a pass, passes a frame."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cplab.speculation.drafted_frame import DraftedFrame
from cplab.variant import HEADS

#: Frames over which passes a frame are told.
_RECENT = 64


class Acceptance:
    """What became of the drafts of all frames so far.

    Args:
        passes: codes of a frame.
        drafter: what made the drafts, `cplab.speculation.drafter.Drafter.name`.
    """

    def __init__(self, passes: int, drafter: str = HEADS) -> None:
        self.drafter = drafter
        self.frames = self.passes = self.drafts_made = 0
        self.asked = np.zeros(passes, np.int64)
        self.held = np.zeros(passes, np.int64)
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT)

    def count(self, frame: DraftedFrame) -> None:
        """Count one frame."""
        self.frames += 1
        self.passes += len(frame.begins)
        self.drafts_made += frame.drafts_made
        self._recent.append((len(frame.begins), frame.drafts_made))
        for g in frame.begins.tolist():
            for depth, held in enumerate(frame.verdicts(g)):
                self.asked[g + depth] += 1
                self.held[g + depth] += held

    def recent(self) -> tuple[int, int]:
        """Passes and drafts of a frame, over the latest frames, rounded; (0, 0) before the first."""
        if not self._recent:
            return 0, 0
        passes, drafts = np.mean(self._recent, axis=0)
        return round(passes), round(drafts)

    def facts(self) -> dict[str, Any]:
        """For a record: over all frames; acceptance is None for a codebook of which no draft was asked.

        ``asked`` are drafts that were compared, those that no pass took in too; ``held`` those that were right.
        """
        codes = self.frames * len(self.asked)
        return {
            "drafter": self.drafter,
            "frames": self.frames,
            "passes_per_frame": round(self.passes / self.frames, 3) if self.frames else None,
            "codes_per_pass": round(codes / self.passes, 3) if self.passes else None,
            "drafts_per_frame": round(self.drafts_made / self.frames, 3) if self.frames else None,
            "acceptance": [
                round(h / a, 4) if a else None for h, a in zip(self.held.tolist(), self.asked.tolist(), strict=True)
            ],
            "asked": self.asked.tolist(),
            "held": self.held.tolist(),
        }


@runtime_checkable
class Speculates(Protocol):
    """A `cplab.variant.CodePredictor` that counts what became of its drafts."""

    acceptance: Acceptance
