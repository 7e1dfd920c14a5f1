"""What the passes of a frame took in, and which of it held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class DraftedFrame:
    """One frame, pass by pass. A pass has the number of the first code that it gives.

    Attributes:
        begins: numbers of the passes that were run, ascending, 0 first.
        made: ``[passes]``, drafts made by draft heads before each pass, whether it was run or not.
        taken: ``[passes]``, drafts that each pass takes in.
        drafts: ``[passes, passes]`` int32: row g has the drafts of codes g, g + 1, ... for pass g.
        fed: ``[passes]`` int32, the codes that were fed back.
        layer_ns: ``[passes]``, nanoseconds that each pass was in the layers.
    """

    begins: NDArray[np.int64]
    made: NDArray[np.int64]
    taken: NDArray[np.int64]
    drafts: NDArray[np.int32]
    fed: NDArray[np.int32]
    layer_ns: NDArray[np.int64]

    def verdicts(self, g: int) -> list[bool]:
        """Whether each draft of pass ``g`` held, up to and with the first that did not: the others were never asked.

        Drafts that were made and not taken in are among them: they were compared at the price of a head.
        """
        count = int(max(self.made[g], self.taken[g]))
        held: list[bool] = (self.drafts[g, g : g + count] == self.fed[g : g + count]).tolist()
        return held[: held.index(False) + 1] if False in held else held

    @property
    def draft_heads(self) -> int:
        """Heads that were run for drafts."""
        return int(self.made[self.begins].sum())
