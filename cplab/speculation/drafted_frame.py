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
        made: ``[passes]``, drafts made before each pass; of passes that were not run it says nothing.
        taken: ``[passes]``, drafts that each pass took in; the same.
        drafts: ``[passes, passes]`` int32: row g has the drafts of codes g, g + 1, ... for pass g.
        fed: ``[passes]`` int32, the codes that were fed back.
        layer_ns: ``[passes]``, nanoseconds that each pass was in the layers.
        draft_ns: ``[passes, 2]``, nanoseconds that a drafting model took for the first draft before each pass, and for
            the others.
    """

    begins: NDArray[np.int64]
    made: NDArray[np.int64]
    taken: NDArray[np.int64]
    drafts: NDArray[np.int32]
    fed: NDArray[np.int32]
    layer_ns: NDArray[np.int64]
    draft_ns: NDArray[np.int64]

    def verdicts(self, g: int) -> list[bool]:
        """Whether each draft of pass ``g`` held, up to and with the first that did not: the others were never asked.

        Drafts that were made and not taken in are among them: they were compared at the price of a head.
        """
        count = int(max(self.made[g], self.taken[g]))
        held: list[bool] = (self.drafts[g, g : g + count] == self.fed[g : g + count]).tolist()
        return held[: held.index(False) + 1] if False in held else held

    @property
    def drafts_made(self) -> int:
        """Drafts that were made, whether they were taken in or not."""
        return int(self.made[self.begins].sum())

    @property
    def drafted_codes(self) -> list[int]:
        """The code of each draft that was made."""
        return [code for g in self.begins.tolist() for code in range(g, g + int(self.made[g]))]

    @property
    def tokens_behind(self) -> int:
        """Tokens that a drafting model took in before first drafts, beyond one each."""
        return sum(tokens - 1 for _, tokens in self.caught_up())

    def caught_up(self) -> list[tuple[int, int]]:
        """Each pass that drafts were made for, with the tokens that a drafting model had not seen before it.

        It has seen what it was fed, as far as that was accepted.
        """
        seen, found = 0, []
        for g in self.begins.tolist():
            seen = min(seen, g + 1)
            if self.made[g]:
                found.append((g, g + 2 - seen))
                seen = g + int(self.made[g]) + 1
        return found
