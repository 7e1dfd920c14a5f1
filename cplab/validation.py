"""Validation: where an implementation's codes are not the golden's, and whether rounding can explain it.

The gate decides whether an implementation is right; this describes. At a *tie*, where the model's largest logit leads
the second by less than other roundings of the same sum move them, two right implementations may choose different
codes, and from there on a free-running frame goes another way. Anywhere else a different code is wrong. How far right
implementations differ is not guessed: a golden made with ``--reference torch`` has recorded the largest difference
between PyTorch's and the oracle's logits, and without that record nothing is called a tie.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError, NonFiniteLogitsError
from cplab.golden import Golden
from cplab.golden_choosing import MARGIN_FACTOR
from cplab.variant import CodePredictor, Trace, takes_forced

Label = Literal["tie", "wrong", "differs", "follows"]
Codes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One code that is not the golden's.

    Attributes:
        frame: index into the golden.
        codebook: 1 for CB1.
        expected: the golden's code.
        got: the implementation's code.
        margin: of the golden there, from its largest logit to its second.
        gap: the implementation's logit of its own code less that of the golden's code; None where it gave no logits or
            a code outside the vocabulary. After a tie it is as small as the margin.
        label: ``follows`` for a free-running code after an earlier mismatch in its frame, which another prefix
            explains; ``tie`` where margin and gap are both below the golden's `tie_bound`; ``wrong`` otherwise, and
            ``differs`` where rounded weights or quantised arithmetic make another model.
    """

    frame: int
    codebook: int
    expected: int
    got: int
    margin: float
    gap: float | None
    label: Label


@dataclass(frozen=True, slots=True)
class FailedFrame:
    """A frame none of whose codes count as matching: an error, or logits that are not finite."""

    frame: int
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """An implementation's codes beside a golden's.

    Attributes:
        matches: ``[F, groups-1]`` bool.
        mismatches: every other code, by frame and codebook; those of failed frames are not among them.
        failed: frames with an error, or logits that are not finite.
    """

    matches: NDArray[np.bool_]
    mismatches: tuple[Mismatch, ...]
    failed: tuple[FailedFrame, ...]

    @property
    def all_match(self) -> bool:
        """Whether every code is the golden's."""
        return bool(self.matches.all())

    @property
    def share(self) -> float:
        """Share of codes that are the golden's."""
        return float(self.matches.mean())

    @property
    def by_codebook(self) -> list[int]:
        """Frames with the golden's code, for CB1, CB2, ..."""
        return [int(count) for count in self.matches.sum(axis=0)]

    @property
    def frames_matched(self) -> int:
        """Frames with all of the golden's codes."""
        return int(self.matches.all(axis=1).sum())

    def summary(self) -> str:
        """``495/495 codes match (33/33 frames)``."""
        frames = f"{self.frames_matched}/{len(self.matches)} frames"
        return f"{int(self.matches.sum())}/{self.matches.size} codes match ({frames})"


@dataclass(frozen=True, slots=True)
class Validation:
    """Both ways of running a frame, against one golden."""

    free_running: Comparison
    teacher_forced: Comparison | None
    """None where the predictor takes no forced codes."""

    @property
    def runs(self) -> dict[str, Comparison]:
        """The ways that were run, by name."""
        both = {"free-running": self.free_running, "teacher-forced": self.teacher_forced}
        return {name: run for name, run in both.items() if run is not None}

    @property
    def shares(self) -> tuple[float | None, float]:
        """Shares of codes that are the golden's, teacher-forced and free-running."""
        return None if self.teacher_forced is None else self.teacher_forced.share, self.free_running.share

    @property
    def all_match(self) -> bool:
        """Whether every code is the golden's, free-running and (where it was run) teacher-forced."""
        return all(run.all_match for run in self.runs.values())


def validate(
    predictor: CodePredictor, golden: Golden, *, frames: int | None = None, same_model: bool = True
) -> Validation:
    """Run ``frames`` frames (default all) of a golden one at a time, free-running and with its codes fed back.

    Where the predictor's weights or its arithmetic are others than the golden's (not ``same_model``), this shows how
    much of what the golden says is kept, and no code is called wrong.
    """
    count = len(golden) if frames is None else min(frames, len(golden))
    otherwise: Label = "wrong" if same_model else "differs"
    free = _compared(predictor, golden, count, otherwise, forced=False)
    forced = _compared(predictor, golden, count, otherwise, forced=True) if takes_forced(predictor) else None
    return Validation(free, forced)


def tie_bound(golden: Golden) -> float | None:
    """Margins below this (in units of logits) are ties: MARGIN_FACTOR x the recorded difference to PyTorch.

    None where the golden holds no such record: it was made by the oracle alone.
    """
    recorded = golden.provenance.get("largest_difference_to_reference")
    if isinstance(recorded, bool) or not isinstance(recorded, int | float):
        return None
    return MARGIN_FACTOR * float(recorded) if math.isfinite(recorded) and recorded >= 0 else None


def _compared(predictor: CodePredictor, golden: Golden, count: int, otherwise: Label, *, forced: bool) -> Comparison:
    matches = np.zeros((count, golden.codes.shape[1]), np.bool_)
    mismatches: list[Mismatch] = []
    failed: list[FailedFrame] = []
    bound = tie_bound(golden) or 0.0  # no margin is below that
    for frame in range(count):
        try:
            codes, logits = _frame(predictor, golden, frame, forced=forced)
        except NonFiniteLogitsError as error:  # its own frame number is that within the call
            failed.append(FailedFrame(frame, f"non-finite logits in pass {error.pass_index}"))
            continue
        except CplabError as error:
            failed.append(FailedFrame(frame, str(error)))
            continue
        matches[frame] = codes == golden.codes[frame]
        follows = False
        for g in np.flatnonzero(~matches[frame]):
            label = "follows" if follows else otherwise
            mismatches.append(_mismatch(golden, frame, int(g), int(codes[g]), logits, bound, label))
            follows = not forced
    return Comparison(matches, tuple(mismatches), tuple(failed))


def _frame(
    predictor: CodePredictor, golden: Golden, frame: int, *, forced: bool
) -> tuple[Codes, NDArray[np.float32] | None]:
    """Codes ``[groups-1]`` and, where the predictor gives them, logits ``[groups-1, vocab]``.

    Raises:
        CplabError: the predictor's own, or it returned no codes, or (NonFiniteLogitsError) a logit is not finite.
    """
    part = slice(frame, frame + 1)
    wanted = golden.codes[part].copy()
    trace = Trace()
    codes = predictor.predict(
        golden.hidden[part].copy(), golden.cb0_embed[part].copy(), forced=wanted if forced else None, trace=trace
    )
    if not isinstance(codes, np.ndarray) or codes.shape != wanted.shape or codes.dtype != np.int32:
        raise CplabError(f"predict returned no int32{list(wanted.shape)}")
    logits = None if trace.logits is None else np.asarray(trace.logits)
    if logits is None or logits.ndim != 3 or logits.shape[:2] != wanted.shape:
        return codes[0].copy(), None
    finite = np.isfinite(logits[0]).all(axis=-1)
    if not finite.all():
        raise NonFiniteLogitsError(0, int(np.argmin(finite)))
    return codes[0].copy(), logits[0]


def _mismatch(
    golden: Golden,
    frame: int,
    g: int,
    got: int,
    logits: NDArray[np.float32] | None,
    bound: float,
    label: Label,
) -> Mismatch:
    expected, margin = int(golden.codes[frame, g]), float(golden.margins[frame, g])
    inside = logits is not None and 0 <= got < logits.shape[-1] and expected < logits.shape[-1]
    gap = float(logits[g, got]) - float(logits[g, expected]) if logits is not None and inside else None
    # Rounding moves two close logits past each other by little, and the larger one is still the one chosen.
    tie = margin < bound and (logits is None or (gap is not None and 0 <= gap < bound))
    return Mismatch(frame, g + 1, expected, got, margin, gap, "tie" if tie and label == "wrong" else label)
