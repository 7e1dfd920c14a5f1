"""The gate: the one place where it is decided whether an implementation is right.

Tests, ``bench gate``, ``bench sweep`` and ``cplab validate`` all come here. A predictor is called on the golden's
frames and its logits are compared bit by bit (by digest; where one differs, the oracle is asked for the value, so that
the report can say frame, pass, index, both values and their distance). Nothing here knows how a variant works.

========================  =============================================================================================
check                     what it finds
========================  =============================================================================================
``float mode, first``     flush-to-zero set by the caller before the thread team exists, on a frame among subnormals
``finite``                NaN or infinite logits
``range``                 codes outside the vocabulary
``codes``                 free-running codes that are not the golden's
``logits``                free-running logits with other bits (tier exact)
``teacher-forced``        the golden's codes fed back: every code must follow from the right prefix
``forced logits``         other codes fed back, bits compared (tier exact)
``order``                 frames in another order give something else: state left over from an earlier call
``batch``                 three frames at once give something else than one at a time
``inputs``                the call wrote to its arguments
``float mode, team``      flush-to-zero set by the caller after the team exists
========================  =============================================================================================

A NaN never equals anything here: bits are compared, and non-finite values fail before any comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError, NonFiniteLogitsError
from cplab.golden import SUBNORMAL_SCALE, Golden, row_digests
from cplab.model import Model
from cplab.oracle import Oracle, OracleFrame
from cplab.variant import CodePredictor, Tier, Trace

Codes = NDArray[np.int32]
Logits = NDArray[np.float32]


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

    ``teacher_forced`` and ``free_running`` are the shares of codes equal to the golden's.
    """

    frames: int
    passes: int
    checks: list[Check] = field(default_factory=list)
    codes_matched: int = 0
    frames_matched: int = 0
    teacher_forced: float = 0.0
    first_difference: Difference | None = None

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
        return self.summary()


def judge(
    predictor: CodePredictor, model: Model, golden: Golden, *, tier: Tier = "exact", frames: int | None = None
) -> Report:
    """Run every check of the gate on a predictor.

    Args:
        predictor: what a factory returned. For the first check to mean anything it must not have been called yet.
        model: the weights whose oracle is the judge; for a lossy pack, the rounded ones.
        golden: made from these weights.
        tier: ``exact`` compares bits, ``codes`` compares codes.
        frames: how many of the golden's frames, at least 2; default all.

    Raises:
        GoldenError: the golden belongs to other weights.
        CplabError: the tier ``quality``, which needs an engine's own error as its measure and has no user yet.
    """
    if tier == "quality":
        raise CplabError("tier quality cannot be judged by this version of the lab: exact and codes can")
    golden.require(model)
    count = len(golden) if frames is None else max(2, min(frames, len(golden)))
    return _Judge(predictor, model, golden, exact=tier == "exact", frames=count).run()


@dataclass(slots=True)
class _Call:
    """One call's outcome; ``error`` where it raised, ``bad_frame`` where that was a non-finite logit."""

    codes: Codes | None
    logits: Logits | None
    error: str = ""
    bad_pass: int | None = None


class _Judge:
    def __init__(self, predictor: CodePredictor, model: Model, golden: Golden, *, exact: bool, frames: int) -> None:
        self.predictor, self.model, self.golden, self.exact = predictor, model, golden, exact
        self.count, self.passes = frames, model.spec.passes
        self.report = Report(frames, self.passes)
        self.changed_inputs = ""
        self._oracle: Oracle | None = None

    def run(self) -> Report:
        if self.exact:
            self._float_mode("float mode, first")
        free = [self._call(i) for i in range(self.count)]
        self._finite_and_range(free)
        self._codes(free)
        if self.exact:
            self._bits("logits", free, self.golden.digests, lambda i: self._truth().frame(*self._inputs(i)))
        forced = [self._call(i, forced=self.golden.codes) for i in range(self.count)]
        self._teacher_forced(forced)
        if self.exact:
            other = [self._call(i, forced=self.golden.forced) for i in range(self.count)]
            scored = self.golden.forced_digests
            self._bits("forced logits", other, scored, lambda i: self._truth().scored(*self._inputs(i), self._fed(i)))
        self._order(free)
        self._batch(free)
        self._add("inputs", not self.changed_inputs, self.changed_inputs)
        if self.exact:
            self._float_mode("float mode, team")
        return self.report

    def _add(self, name: str, passed: bool, detail: str = "") -> None:
        self.report.checks.append(Check(name, passed, "" if passed else detail))

    def _truth(self) -> Oracle:
        if self._oracle is None:
            self._oracle = Oracle(self.model)
        return self._oracle

    def _inputs(self, i: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.golden.hidden[i], self.golden.cb0_embed[i]

    def _fed(self, i: int) -> Codes:
        fed: Codes = self.golden.forced[i]
        return fed

    def _call(self, i: int, *, forced: Codes | None = None) -> _Call:
        part = None if forced is None else forced[i : i + 1]
        return self._predict(self.golden.hidden[i : i + 1], self.golden.cb0_embed[i : i + 1], part)

    def _predict(self, hidden: NDArray[np.float32], cb0: NDArray[np.float32], forced: Codes | None = None) -> _Call:
        arguments = [hidden.copy(), cb0.copy(), None if forced is None else forced.copy()]
        trace = Trace()
        try:
            codes = self.predictor.predict(arguments[0], arguments[1], forced=arguments[2], trace=trace)  # type: ignore[arg-type]
        except NonFiniteLogitsError as error:
            return _Call(None, None, str(error), error.pass_index)
        except CplabError as error:
            return _Call(None, None, str(error))
        for name, before, after in zip(
            ("hidden", "cb0_embed", "forced"), (hidden, cb0, forced), arguments, strict=True
        ):
            if before is not None and after is not None and before.tobytes() != after.tobytes():
                self.changed_inputs = self.changed_inputs or f"{name} was changed by the call"
        shape = (len(hidden), self.passes)
        if not isinstance(codes, np.ndarray) or codes.shape != shape or codes.dtype.kind != "i":
            return _Call(None, None, f"predict returned {_describe(codes)}, integers {list(shape)} are wanted")
        if trace.logits is not None and trace.logits.shape != (*shape, self.model.spec.vocab):
            return _Call(None, None, f"trace.logits is {_describe(trace.logits)}")
        return _Call(codes.astype(np.int32), trace.logits)

    def _finite_and_range(self, calls: list[_Call]) -> None:
        bad = ""
        outside = ""
        for i, call in enumerate(calls):
            if call.bad_pass is not None:
                bad = bad or f"frame {i}, pass {call.bad_pass}: {call.error}"
            elif call.logits is not None and not np.isfinite(call.logits).all():
                _, g, index = np.argwhere(~np.isfinite(call.logits))[0]
                bad = bad or f"frame {i}, pass {g}, logit {index}: {call.logits[0, g, index]}"
            if call.codes is not None:
                wrong = (call.codes < 0) | (call.codes >= self.model.spec.vocab)
                if wrong.any():
                    g = int(np.argmax(wrong[0]))
                    outside = outside or f"frame {i}, pass {g}: code {call.codes[0, g]}"
        self._add("finite", not bad, bad)
        self._add("range", not outside, outside)

    def _codes(self, calls: list[_Call]) -> None:
        detail = ""
        for i, call in enumerate(calls):
            if call.codes is None:
                detail = detail or f"frame {i}: {call.error}"
                continue
            same = call.codes[0] == self.golden.codes[i]
            self.report.codes_matched += int(same.sum())
            self.report.frames_matched += bool(same.all())
            if not same.all():
                g = int(np.argmin(same))
                margin = self.golden.margins[i, g]
                detail = detail or (
                    f"frame {i}, pass {g}: code {call.codes[0, g]} instead of {self.golden.codes[i, g]} "
                    f"(margin of the golden's: {margin:.3g})"
                )
        self._add("codes", not detail, detail)

    def _bits(
        self, name: str, calls: list[_Call], digests: NDArray[np.uint8], truth: Callable[[int], OracleFrame]
    ) -> None:
        for i, call in enumerate(calls):
            if call.logits is None:
                self._add(name, False, f"frame {i}: {call.error or 'the variant gives no logits to compare'}")
                return
            same = (row_digests(call.logits[0]) == digests[i]).all(axis=-1)
            if not same.all():
                difference = self._difference(i, call.logits[0], truth(i).logits)
                if self.report.first_difference is None:
                    self.report.first_difference = difference
                self._add(name, False, str(difference))
                return
        self._add(name, True)

    def _difference(self, frame: int, got: Logits, expected: Logits) -> Difference:
        unequal = got.view(np.uint32) != np.ascontiguousarray(expected).view(np.uint32)
        if not unequal.any():
            raise CplabError(f"frame {frame}: the golden's digests are not those of this machine's oracle")
        g, index = (int(n) for n in np.argwhere(unequal)[0])
        a, b = expected[g, index], got[g, index]
        return Difference(frame, g, index, float(a), float(b), abs(_ordinal(a) - _ordinal(b)))

    def _teacher_forced(self, calls: list[_Call]) -> None:
        detail = ""
        matched = 0
        for i, call in enumerate(calls):
            if call.codes is None:
                detail = detail or f"frame {i}: {call.error}"
                continue
            same = call.codes[0] == self.golden.codes[i]
            matched += int(same.sum())
            if not same.all():
                g = int(np.argmin(same))
                detail = detail or f"frame {i}, pass {g}: code {call.codes[0, g]} instead of {self.golden.codes[i, g]}"
        self.report.teacher_forced = matched / (self.count * self.passes)
        self._add("teacher-forced", not detail, detail)

    def _order(self, free: list[_Call]) -> None:
        detail = ""
        for i in (1, 0):
            detail = detail or self._unlike(free[i], self._call(i), f"frame {i} after frame {1 - i}")
        self._add("order", not detail, detail)

    def _batch(self, free: list[_Call]) -> None:
        members = [0, 1, 2 % self.count]
        whole = self._predict(self.golden.hidden[members], self.golden.cb0_embed[members])
        detail = "" if whole.codes is not None or free[0].codes is None else whole.error
        if whole.codes is not None:
            for b, i in enumerate(members):
                logits = None if whole.logits is None else whole.logits[b : b + 1]
                part = _Call(whole.codes[b : b + 1], logits)
                detail = detail or self._unlike(free[i], part, f"frame {i} as number {b} of 3 at once")
        self._add("batch", not detail, detail)

    def _unlike(self, first: _Call, again: _Call, what: str) -> str:
        """How two results for the same frame differ; a call that fails the same way twice does not."""
        if first.codes is None or again.codes is None:
            same_failure = first.codes is None and again.codes is None
            return "" if same_failure else f"{what}: {first.error or again.error}"
        if not np.array_equal(first.codes, again.codes):
            return f"{what}: other codes than alone"
        if self.exact and first.logits is not None and again.logits is not None:
            unequal = first.logits.view(np.uint32) != again.logits.view(np.uint32)
            if unequal.any():
                _, g, index = (int(n) for n in np.argwhere(unequal)[0])
                return f"{what}: other bits at pass {g}, logit {index}"
        return ""

    def _float_mode(self, name: str) -> None:
        from cplab.kernels.machine import flush_to_zero

        hidden, cb0 = (x[:1] * SUBNORMAL_SCALE for x in (self.golden.hidden, self.golden.cb0_embed))
        with flush_to_zero():
            call = self._predict(hidden, cb0)
        if call.logits is None:
            # A variant that fails on any input is told so by other checks; failing here alone is this check's finding.
            call = self._predict(hidden, cb0) if call.bad_pass is not None else call
            self._add(name, call.bad_pass is not None, call.error or "the variant gives no logits to compare")
            return
        same = (row_digests(call.logits[0]) == self.golden.subnormal_digests).all(axis=-1)
        if same.all():
            self._add(name, True)
            return
        plain = self._predict(hidden, cb0)
        if plain.logits is not None and plain.logits.tobytes() == call.logits.tobytes() and not self._right(0):
            self._add(name, True)  # as wrong without flushing, and on ordinary inputs: another check's finding
            return
        difference = self._difference(0, call.logits[0], self._truth().frame(hidden[0], cb0[0]).logits)
        self._add(name, False, f"subnormal inputs, flush-to-zero set by the caller: {difference}")

    def _right(self, i: int) -> bool:
        """Whether an ordinary frame gives the golden's bits."""
        logits = self._call(i).logits
        return logits is not None and bool((row_digests(logits[0]) == self.golden.digests[i]).all())


def _ordinal(value: np.float32) -> int:
    """Position of a float32 among all, so that neighbours differ by one."""
    bits = int(np.float32(value).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


def _describe(value: object) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
