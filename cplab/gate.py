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
``batch``                 3 frames at once (on enough frames 2 and 9 too) give something else than one at a time; as do
                          batches that were asked for
``untraced``              the call that users make, without a trace, gives other codes than the traced one
``speculation``           drafts that are right, wrong, or wrong at one depth change a bit, or right ones are not
                          taken in (variants to which drafts can be handed in: `cplab.speculation.judging`)
``inputs``                the call wrote to its arguments
``results``               an array that was returned changed in a later call
``float mode, team``      flush-to-zero set by the caller after the team exists
``sampling``              codes that are not those that the law draws from the logits (`cplab.gate_sampling`)
``quality``               logits too far from the oracle's (tier quality: `cplab.gate_quality`)
``contract``              NaN, wrong types and widths taken without a word; strided inputs; untrue counts and pass times
========================  =============================================================================================

Of a predictor that takes no forced codes (`cplab.variant.takes_forced`) what needs them is left out, and the report's
note says so; tiers ``exact`` and ``quality`` cannot do without.

A NaN never equals anything here: bits are compared, and non-finite values fail before any comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cplab.errors import CplabError, NonFiniteLogitsError
from cplab.gate_contract import broken_contract
from cplab.gate_report import Check, Difference, Report
from cplab.gate_sampling import SamplingJudge
from cplab.golden import SUBNORMAL_SCALE, Golden, row_digests
from cplab.model import Model
from cplab.oracle import Oracle, OracleFrame
from cplab.oracle_quantised import oracle_for
from cplab.speculation.judging import TakesDrafts, speculation_fault
from cplab.variant import CodePredictor, Tier, Trace, takes_forced

Codes = NDArray[np.int32]
Logits = NDArray[np.float32]


#: From so many frames on, the gate is thorough rather than quick.
_MANY = 4


def judge(
    predictor: CodePredictor,
    model: Model,
    golden: Golden,
    *,
    tier: Tier = "exact",
    arithmetic: str = "f32",
    frames: int | None = None,
    format: str = "",
    batches: Sequence[int] = (),
) -> Report:
    """Run every check of the gate on a predictor.

    Args:
        predictor: what a factory returned. For the first check to mean anything it must not have been called yet.
        model: the weights whose oracle is the judge; for a lossy pack, the rounded ones.
        golden: made from these weights in this arithmetic.
        tier: ``exact`` compares bits, ``codes`` compares codes, ``quality`` distances (`cplab.gate_quality`).
        arithmetic: id of the rounding law whose oracle is the judge.
        frames: how many of the golden's frames, at least 2; default all.
        format: how the predictor holds matrices; only tier ``quality`` needs to know.
        batches: frames at once that must give what they give alone, beside those that every gate tries; tier
            ``quality`` passes over them.

    Raises:
        GoldenError: the golden belongs to other weights or another arithmetic.
        BadInputError: tier ``quality`` with a format that no naive rounding is known for.
    """
    golden.require(model, arithmetic)
    count = len(golden) if frames is None else max(2, min(frames, len(golden)))
    if tier == "quality":
        from cplab.gate_quality import judge_quality

        return judge_quality(predictor, model, golden, format=format, frames=count)
    return Judge(predictor, model, golden, exact=tier == "exact", frames=count, batches=batches).run()


@dataclass(slots=True)
class _Call:
    """One call's outcome; ``error`` where it raised, ``bad_frame`` where that was a non-finite logit."""

    codes: Codes | None
    logits: Logits | None
    error: str = ""
    bad_pass: int | None = None
    pass_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


class Judge:
    """One judgement of tier ``exact`` or ``codes``; `cplab.gate_quality` has the third."""

    def __init__(
        self, predictor: CodePredictor, model: Model, golden: Golden, *, exact: bool, frames: int,
        batches: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.predictor, self.model, self.golden, self.exact = predictor, model, golden, exact
        self.count, self.passes, self.batches = frames, model.spec.passes, batches
        self.report = Report(frames, self.passes)
        self.changed_inputs = ""
        self.kept: tuple[Codes, Codes] | None = None
        self._oracle: Oracle | None = None
        self.forces = exact or takes_forced(predictor)

    def run(self) -> Report:
        """Every check in order."""
        if self.exact:
            self._float_mode("float mode, first")
        free = [self._call(i) for i in range(self.count)]
        self._finite_and_range(free)
        self._codes(free)
        if self.exact:
            self._bits("logits", free, self.golden.digests, lambda i: self._truth().frame(*self._inputs(i)))
        forced = [self._call(i, forced=self.golden.codes) for i in range(self.count)] if self.forces else []
        if self.forces:
            self._teacher_forced(forced)
        else:
            self.report.teacher_forced = None
            self.report.note = "judged by free-running codes only: it takes no forced codes"
        other = []
        if self.exact:
            other = [self._call(i, forced=self.golden.forced) for i in range(self.count)]
            scored = self.golden.forced_digests
            self._bits("forced logits", other, scored, lambda i: self._truth().scored(*self._inputs(i), self._fed(i)))
        self._order(free)
        self._batch(free, forced)
        self._untraced(free, forced)
        self._speculation()
        self._add("inputs", not self.changed_inputs, self.changed_inputs)
        changed = self.kept is not None and not np.array_equal(*self.kept)
        self._add("results", not changed, "the codes of the first call changed in a later one: return a copy")
        self._sampling([call.logits for call in other])
        if self.exact:
            self._float_mode("float mode, team")
        wrong = broken_contract(self.predictor, self.golden, [(call.codes, call.pass_ns) for call in free])
        self._add("contract", not wrong, wrong)
        return self.report

    def _add(self, name: str, passed: bool, detail: str = "") -> None:
        self.report.checks.append(Check(name, passed, "" if passed else detail))

    def _truth(self) -> Oracle:
        if self._oracle is None:
            self._oracle = oracle_for(self.model, self.golden.arithmetic)
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
        if not isinstance(codes, np.ndarray) or codes.shape != shape or codes.dtype != np.int32:
            return _Call(None, None, f"predict returned {_describe(codes)}, int32{list(shape)} is wanted")
        plain = np.asarray(codes).view(np.ndarray)
        if self.kept is None:
            self.kept = (plain, plain.copy())
        if trace.logits is not None and trace.logits.shape != (*shape, self.model.spec.vocab):
            return _Call(None, None, f"trace.logits is {_describe(trace.logits)}")
        logits = None if trace.logits is None else np.asarray(trace.logits).view(np.ndarray)
        return _Call(plain.copy(), logits, pass_ns=np.asarray(trace.pass_ns))

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
                difference = Difference.between(i, call.logits[0], truth(i).logits)
                if self.report.first_difference is None:
                    self.report.first_difference = difference
                self._add(name, False, str(difference))
                return
        self._add(name, True)

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

    def _batch(self, free: list[_Call], forced: list[_Call]) -> None:
        detail = ""
        usual = (2, 3, 9) if self.count >= _MANY else (3,)
        for size in dict.fromkeys([*usual, *self.batches]):
            members = [i % self.count for i in range(size)]
            detail = detail or self._together(members, free, None)
        if self.forces:
            detail = detail or self._together([1, 0], forced, self.golden.codes)
        self._add("batch", not detail, detail)

    def _together(self, members: list[int], alone: list[_Call], codes: Codes | None) -> str:
        fed = None if codes is None else codes[members]
        whole = self._predict(self.golden.hidden[members], self.golden.cb0_embed[members], fed)
        if whole.codes is None:
            return "" if any(alone[i].codes is None for i in members) else whole.error
        for b, i in enumerate(members):
            logits = None if whole.logits is None else whole.logits[b : b + 1]
            part = _Call(whole.codes[b : b + 1], logits)
            unlike = self._unlike(alone[i], part, f"frame {i} as number {b} of {len(members)} at once")
            if unlike:
                return f"{unlike}, teacher-forced" if codes is not None else unlike
        return ""

    def _sampling(self, greedy: list[Logits | None]) -> None:
        thorough = self.count >= _MANY
        right = not {"logits", "forced logits"} & set(self.report.failed())
        judge = SamplingJudge(
            self.predictor,
            self.model,
            self.golden,
            exact=self.exact,
            greedy=greedy,
            oracle=self._truth if thorough and right else None,
            thorough=thorough,
        )
        fault = judge.fault()
        self._add("sampling", not fault, fault)

    def _untraced(self, free: list[_Call], forced: list[_Call]) -> None:
        detail = ""
        ways = [("free-running", free, None), ("teacher-forced", forced, self.golden.codes)]
        for name, alone, codes in ways[: 2 if self.forces else 1]:
            for i in (0, 1) if self.count >= _MANY else (1,):
                part = slice(i, i + 1)
                fed = None if codes is None else codes[part].copy()
                try:
                    given = self.predictor.predict(
                        self.golden.hidden[part].copy(), self.golden.cb0_embed[part].copy(), forced=fed
                    )
                except CplabError as error:
                    detail = detail or ("" if alone[i].codes is None else f"frame {i}, {name}: {error}")
                    continue
                traced = alone[i].codes
                if traced is not None and not np.array_equal(np.asarray(given).view(np.ndarray), traced):
                    detail = detail or f"frame {i}, {name}: other codes than with a trace"
        self._add("untraced", not detail, detail)

    def _speculation(self) -> None:
        if self.exact and isinstance(self.predictor, TakesDrafts):
            right = not {"codes", "logits", "forced logits"} & set(self.report.failed())
            vocab = self.model.spec.vocab
            # Where codes are wrong without drafts, another check has said so.
            fault = speculation_fault(self.predictor, self.golden, vocab, self.count) if right else ""
            self._add("speculation", not fault, fault)

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
        difference = Difference.between(0, call.logits[0], self._truth().frame(hidden[0], cb0[0]).logits)
        self._add(name, False, f"subnormal inputs, flush-to-zero set by the caller: {difference}")

    def _right(self, i: int) -> bool:
        """Whether an ordinary frame gives the golden's bits."""
        logits = self._call(i).logits
        return logits is not None and bool((row_digests(logits[0]) == self.golden.digests[i]).all())


def _describe(value: object) -> str:
    return f"{value.dtype}{list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
