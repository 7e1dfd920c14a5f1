"""What the gate found, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where logits differ: ``ulps`` is the distance in float32 steps."""

    frame: int
    pass_index: int
    index: int
    expected: float
    got: float
    ulps: int

    @classmethod
    def between(cls, frame: int, got: NDArray[np.float32], expected: NDArray[np.float32]) -> Self:
        """The first difference of a frame's logits ``[groups-1, vocab]``, bit by bit.

        Raises:
            CplabError: there is none, although the golden's digests said so.
        """
        unequal = got.view(np.uint32) != np.ascontiguousarray(expected).view(np.uint32)
        if not unequal.any():
            raise CplabError(f"frame {frame}: the golden's digests are not those of this machine's oracle")
        g, index = (int(n) for n in np.argwhere(unequal)[0])
        a, b = expected[g, index], got[g, index]
        return cls(frame, g, index, float(a), float(b), abs(_ordinal(a) - _ordinal(b)))

    def __str__(self) -> str:
        return (
            f"frame {self.frame}, pass {self.pass_index}, logit {self.index}: "
            f"{self.got!r} instead of {self.expected!r}, {self.ulps} ulps apart"
        )


@dataclass(frozen=True, slots=True)
class Check:
    """One check: passed or not, and one line about it."""

    name: str
    passed: bool
    detail: str = ""


@dataclass(slots=True)
class Report:
    """What the gate found.

    ``teacher_forced`` and ``free_running`` are the shares of codes equal to the golden's, the former None where the
    predictor takes no forced codes; ``note`` is what a judge has to say of a pass beyond that.
    """

    frames: int
    passes: int
    checks: list[Check] = field(default_factory=list)
    codes_matched: int = 0
    frames_matched: int = 0
    teacher_forced: float | None = 0.0
    first_difference: Difference | None = None
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check held, and there was one."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def free_running(self) -> float:
        """Share of free-running codes that are the golden's."""
        return self.codes_matched / (self.frames * self.passes)

    def failed(self) -> list[str]:
        """Names of the checks that did not hold."""
        return [check.name for check in self.checks if not check.passed]

    def summary(self) -> str:
        """``495/495 codes match (33/33 frames)``."""
        return (
            f"{self.codes_matched}/{self.frames * self.passes} codes match ({self.frames_matched}/{self.frames} frames)"
        )

    def detail(self) -> str:
        """The summary where all is well, else the first failed check."""
        for check in self.checks:
            if not check.passed:
                return f"{check.name}: {check.detail}"
        return f"{self.summary()}; {self.note}" if self.note else self.summary()


def _ordinal(value: np.float32) -> int:
    """Position of a float32 among all, so that neighbours differ by one."""
    bits = int(np.float32(value).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)
