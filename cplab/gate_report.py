"""What the gate found, as data."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where logits differ: ``ulps`` is the distance in float32 steps."""

    frame: int
    pass_index: int
    index: int
    expected: float
    got: float
    ulps: int

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

    ``teacher_forced`` and ``free_running`` are the shares of codes equal to the golden's; ``note`` is what a judge has
    to say of a pass beyond that.
    """

    frames: int
    passes: int
    checks: list[Check] = field(default_factory=list)
    codes_matched: int = 0
    frames_matched: int = 0
    teacher_forced: float = 0.0
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
