"""Where one frame's time went, as a predictor that can tell hands it over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cplab.kernels.tracing import PARTS

__all__ = ["PARTS", "Laps", "TellsLaps"]


@dataclass(frozen=True, slots=True)
class Laps:
    """One frame with a lap timer on every member of the team.

    Attributes:
        codes: ``[1, groups-1]`` int32, as ``predict`` gives them.
        ns: ``[members, passes, parts]`` int64, nanoseconds; parts are named by `PARTS`. All parts and passes of a
            member sum to the whole frame, from the launch of the team to its end.
        pass_ns: ``[passes]`` int64, nanoseconds between the barriers that end passes, as member 0 saw them.
        part_bytes: ``[parts]`` int64, bytes of weights that each part streams in a frame, all members together; 0
            where a part streams none.
    """

    codes: NDArray[np.int32]
    ns: NDArray[np.int64]
    pass_ns: NDArray[np.int64]
    part_bytes: NDArray[np.int64]


@runtime_checkable
class TellsLaps(Protocol):
    """A `cplab.variant.CodePredictor` that can also tell where a frame's time goes."""

    def profile(self, hidden: NDArray[np.float32], cb0_embed: NDArray[np.float32]) -> Laps:
        """``predict`` of one frame with the lap timer on: ``hidden [1, talker_hidden]``, ``cb0_embed`` the same.

        Raises:
            BadInputError: more than one frame, or what ``predict`` refuses.
            NonFiniteLogitsError: as ``predict``.
        """
        ...
