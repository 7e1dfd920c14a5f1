"""The gate of tier ``quality``: another engine's reduced precision, such as llama.cpp's F16 and quantised weights.

Such an engine says other codes than the float32 golden, and may. What is asked instead: its logits are finite, its
codes exist, it keeps no state, and with codes pinned its logits are no further from the float32 oracle of the
*original* weights than twice the naive implementation of the same precision (`cplab.naive`), in every frame. Distance
is the root mean square over all logits of a frame. How many codes are the golden's is told as fidelity, not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.gate import Judge
from cplab.gate_report import Check, Report
from cplab.golden import Golden
from cplab.model import Model
from cplab.naive import Naive
from cplab.scoring import scored_logits
from cplab.variant import CodePredictor

#: How many times the naive implementation's distance an engine may be away.
FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class Distance:
    """How far a frame's teacher-forced logits are from the oracle's: ``engine`` and ``naive``, rms, in logits."""

    frame: int
    engine: float
    naive: float

    @property
    def ratio(self) -> float:
        """Engine to naive; infinite where the engine is away and the naive one is not."""
        return self.engine / self.naive if self.naive else math.copysign(math.inf, self.engine)

    @property
    def passed(self) -> bool:
        """Whether the engine is near enough. A naive implementation that overflows is no measure: nothing passes."""
        return math.isfinite(self.naive) and self.engine <= FACTOR * self.naive

    def __str__(self) -> str:
        return (
            f"frame {self.frame}: logits are {self.engine:.3g} (rms) from the f32 oracle's, the naive implementation's "
            f"{self.naive:.3g}: ratio {self.ratio:.2f}, {FACTOR:g} allowed"
        )


def rms(values: NDArray[np.float32]) -> float:
    """Root mean square, summed in float64; NaN or infinite where a value is."""
    return float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))


def judge_quality(predictor: CodePredictor, model: Model, golden: Golden, *, format: str, frames: int) -> Report:
    """Run the gate of tier ``quality``.

    Args:
        predictor: what a factory returned; an attribute ``head_format`` says how it holds heads and projection, where
            that is not ``format``.
        model: the original weights.
        golden: made from them.
        format: how the predictor holds the layers' matrices: a key of `cplab.naive.ACTIVATIONS`.
        frames: how many of the golden's frames.

    Raises:
        BadInputError: a format that no naive rounding is known for.
    """
    return _QualityJudge(predictor, model, golden, format=format, frames=frames).run()


class _QualityJudge(Judge):
    def __init__(self, predictor: CodePredictor, model: Model, golden: Golden, *, format: str, frames: int) -> None:
        super().__init__(predictor, model, golden, exact=False, frames=frames)
        self.kind = format
        self.naive = Naive(model, format, getattr(predictor, "head_format", ""))

    def run(self) -> Report:
        report = super().run()
        error, distances = self._distances()
        worst = max(distances, key=lambda d: d.ratio, default=None)
        if distances and worst is not None:
            report.note = f"rms of logits at most {worst.ratio:.2f} x the naive implementation's"
        told = next((d for d in distances if not d.passed), worst)
        passed = not error and all(d.passed for d in distances)
        report.checks.append(Check("quality", passed, error or str(told)))
        return report

    def _codes(self, calls: Sequence[Any]) -> None:
        super()._codes(list(calls))
        self._only_errors(calls)

    def _teacher_forced(self, calls: Sequence[Any]) -> None:
        super()._teacher_forced(list(calls))
        self._only_errors(calls)

    def _only_errors(self, calls: Sequence[Any]) -> None:
        """Other codes than the golden's are counted, not failed; a call that raised still fails."""
        wrong = next((f"frame {i}: {call.error}" for i, call in enumerate(calls) if call.codes is None), "")
        self.report.checks[-1] = Check(self.report.checks[-1].name, not wrong, wrong)

    def _distances(self) -> tuple[str, list[Distance]]:
        """Every frame's distance, or why there is none to be had."""
        calls = [self._call(i, forced=self.golden.forced) for i in range(self.count)]
        for i, call in enumerate(calls):
            if call.logits is None:
                return f"frame {i}: {call.error or 'the variant gives no logits to compare'}", []
        part = slice(0, self.count)
        truth = scored_logits(self.model, self.golden, self.count)
        golden = self.golden
        naive = self.naive.scored(golden.hidden[part], golden.cb0_embed[part], golden.forced[part])
        if not np.isfinite(naive).all():
            return _overflow(naive, self.kind), []
        engine = [call.logits[0] for call in calls if call.logits is not None]
        with np.errstate(invalid="ignore"):
            pairs = [(rms(e - t), rms(n - t)) for e, n, t in zip(engine, naive, truth, strict=True)]
        return "", [Distance(i, *pair) for i, pair in enumerate(pairs)]


def _overflow(naive: NDArray[np.float32], kind: str) -> str:
    """What to say where the naive implementation itself has logits that are not finite."""
    frame, g = (int(n) for n in np.argwhere(~np.isfinite(naive))[0][:2])
    count = int(np.count_nonzero(~np.isfinite(naive[frame, g])))
    return (
        f"frame {frame}, pass {g}: {count} non-finite logits from the naive {kind} implementation: this model's "
        f"activations are beyond the range of {kind}, so nothing of that precision can pass here, not even an engine "
        "that keeps them wider"
    )
