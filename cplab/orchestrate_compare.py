"""A run of the loop beside a talker dump: which codes are equal, and whether the sums after them have its bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.orchestrate import Run
from cplab.spec import Spec
from cplab.talker_dump import TalkerDump

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Compared:
    """What a run and a dump have in common.

    Attributes:
        frames: how many both have.
        equal: codes that are equal, for each codebook, ``[groups]``.
        steps: frames of which every code is equal, so that the inputs after them can be compared, ``[S]``.
        rmse: of those inputs from the recorded ones, ``[S]``.
        cosine: between them, ``[S]``.
        exact: how many of them have the bits of the dump's own codes and tables, summed in the lab's order.
    """

    frames: int
    equal: NDArray[np.int64]
    steps: NDArray[np.int64]
    rmse: Float64
    cosine: Float64
    exact: int

    @property
    def sums_are_right(self) -> bool:
        """Whether every input that can be compared has the right bits."""
        return self.exact == len(self.steps)

    def as_dict(self) -> dict[str, object]:
        """Plain JSON-able values."""
        return {
            "frames": self.frames,
            "codes_equal": self.equal.tolist(),
            "steps": self.steps.tolist(),
            "next_input_rmse": self.rmse.tolist(),
            "next_input_cosine": self.cosine.tolist(),
            "next_input_exact": self.exact,
        }


def compared(run: Run, dump: TalkerDump) -> Compared:
    """Hold a run against a dump, frame by frame; the run's text must have been the dump's."""
    frames = min(len(run.codes), len(dump))
    same = run.predicted[:frames] == dump.codes[:frames]
    fed = (run.codes[:frames] == dump.codes[:frames]).all(axis=1)
    steps = np.flatnonzero(fed)
    ours, theirs = run.inputs[steps].astype(np.float64), dump.step_inputs[steps].astype(np.float64)
    rmse = np.sqrt(np.mean(np.square(ours - theirs), axis=1))
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    cosine = np.divide((ours * theirs).sum(axis=1), lengths, out=np.ones(len(steps)), where=lengths > 0)
    exact = sum(run.inputs[f].tobytes() == dump.next_input(int(f)).tobytes() for f in steps)
    return Compared(frames, same.sum(axis=0), steps, rmse, cosine, exact)


def must_fit(dump: TalkerDump, spec: Spec, where: str) -> None:
    """Refuse a dump of other dimensions.

    Raises:
        BadInputError: another width, number of codebooks or size of them.
    """
    passes, vocab, width = dump.code_predictor_tables.shape
    given, wanted = (width, passes + 1, vocab), (spec.talker_hidden, spec.groups, spec.vocab)
    if given != wanted:
        said, asked = (f"width {w}, {g} codebooks of {v} codes" for w, g, v in (given, wanted))
        raise BadInputError(f"{where}: a dump of {said}; the code predictor has {asked}")
