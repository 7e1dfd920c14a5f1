"""The gate's word on sampling: codes are drawn as the law says, and what was drawn is what is fed back.

With codes pinned (`Golden.forced`) the logits are known, whatever is drawn: they must be those of the greedy call,
which the gate holds against the oracle, and the law says what must be drawn from them. That is done for every
parameter.
Free-running, the drawn codes are given to the oracle, which must come by the same logits and draw the same codes; by
induction over the passes that is the oracle's own sampled frame.

A variant that is not exact may refuse to sample; if it does sample, its own logits are taken for true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, CplabError
from cplab.golden import Golden
from cplab.model import Model
from cplab.oracle import Oracle
from cplab.sampling import Noise, Sampling, checked_draws
from cplab.variant import CodePredictor, Trace, takes_forced

Codes = NDArray[np.int32]
Logits = NDArray[np.float32]

_OFFICIAL = Sampling(seed=20260, frame=3)
#: What is drawn with: the official parameters, then sets that differ from them in what their names say.
SAMPLINGS: dict[str, Sampling] = {
    "official parameters": _OFFICIAL,
    "a hot nucleus": replace(_OFFICIAL, temperature=2.5, top_k=None, top_p=0.7),
    "another seed": replace(_OFFICIAL, seed=2**63 + 20260),
    "another frame": replace(_OFFICIAL, frame=2**40),
    "another temperature": replace(_OFFICIAL, temperature=2.5),
    "every code": replace(_OFFICIAL, temperature=2.5, top_k=None),
    "few codes": replace(_OFFICIAL, temperature=2.5, top_k=3),
    "half the probability": replace(_OFFICIAL, temperature=2.5, top_p=0.5),
}
#: How many of them a quick gate takes.
_QUICK = 2
#: Codes that one set of parameters is judged by, at least.
_CODES = 15


@dataclass(frozen=True, slots=True)
class _Drawn:
    codes: Codes
    logits: Logits | None


class _RefusedError(CplabError):
    """The predictor does not take noise."""


class SamplingJudge:
    """Sampling of one predictor.

    Args:
        predictor: what is judged.
        model: the weights.
        golden: whose first frames are the inputs.
        exact: whether sampling may be refused and whose logits are true, as the module says.
        greedy: logits of the predictor with ``golden.forced`` fed back, ``[1, groups-1, vocab]`` for each of the first
            frames; None where it gave none.
        oracle: gives the oracle of the golden's arithmetic; None to hold free-running logits against the predictor's
            own with the drawn codes pinned.
        thorough: every set of parameters, batches, noise as an array.
    """

    def __init__(
        self,
        predictor: CodePredictor,
        model: Model,
        golden: Golden,
        *,
        exact: bool,
        greedy: list[Logits | None],
        oracle: Callable[[], Oracle] | None,
        thorough: bool,
    ) -> None:
        self.predictor, self.spec, self.golden, self.exact = predictor, model.spec, golden, exact
        self.greedy, self.oracle, self.thorough = greedy, oracle, thorough
        self.forces = exact or takes_forced(predictor)

    def fault(self) -> str:
        """The first thing that is wrong, in a sentence, or ""."""
        try:
            return next(self._faults(), "")
        except _RefusedError as refusal:
            return f"noise is refused: {refusal}" if self.exact else ""
        except CplabError as error:
            return "" if self._fails_greedily() else str(error)

    def _faults(self) -> Iterator[str]:
        pinned = list(SAMPLINGS.items())[: None if self.thorough else _QUICK]
        for what, sampling in pinned if self.forces else []:
            yield from self._pinned(what, sampling)
        free = []
        for i in (0, 1) if self.thorough else (1,):
            free.append(self._call([i], replace(_OFFICIAL, frame=7 + i)))
            yield from self._fed_back(i, replace(_OFFICIAL, frame=7 + i), free[-1])
        if self.thorough:
            yield from self._injected(free[1])
            yield from self._together(free)

    def _pinned(self, what: str, sampling: Sampling) -> Iterator[str]:
        """Codes drawn while others are fed back."""
        for i in range(min(len(self.golden), -(-_CODES // self.spec.passes))):
            drawn = self._call([i], sampling, self.golden.forced[i : i + 1])
            greedy = self.greedy[i] if i < len(self.greedy) else None
            if drawn.logits is None:
                if self.exact:
                    yield "the variant gives no logits to draw from"
                return
            if self.exact and greedy is not None and drawn.logits.tobytes() != greedy.tobytes():
                yield f"{what}: frame {i} has other logits than without noise"
            yield from self._by_the_law(f"{what}: frame {i}", sampling, drawn)

    def _by_the_law(self, what: str, noise: Noise, drawn: _Drawn) -> Iterator[str]:
        """Codes that the law would not draw from the logits that came with them."""
        draws = checked_draws(self.spec, noise, len(drawn.codes))
        assert draws is not None
        for b, frame in enumerate([] if drawn.logits is None else drawn.logits):
            for g, logits in enumerate(frame):
                # Where logits are not finite, that is another check's finding.
                if np.isfinite(logits).all() and drawn.codes[b, g] != (code := draws.code(b, g, logits)):
                    number = f", number {b} of {len(drawn.codes)}" if len(drawn.codes) > 1 else ""
                    yield f"{what}{number}, pass {g}: code {drawn.codes[b, g]} drawn, the law draws {code}"

    def _fed_back(self, i: int, sampling: Sampling, drawn: _Drawn) -> Iterator[str]:
        """A frame that feeds back what it draws."""
        if not np.array_equal(self._predict([i], sampling, None, None), drawn.codes):
            yield f"frame {i}, free-running: other codes drawn than with a trace"
        if drawn.logits is None:
            return
        yield from self._by_the_law(f"frame {i}, free-running", sampling, drawn)
        if self.exact and self.oracle is not None:
            hidden, cb0 = self.golden.hidden[i], self.golden.cb0_embed[i]
            truth = self.oracle().scored(hidden, cb0, drawn.codes[0], checked_draws(self.spec, sampling, 1))
            if not np.array_equal(truth.codes, drawn.codes[0]):
                mine, right = drawn.codes[0].tolist(), truth.codes.tolist()
                yield f"frame {i}, free-running: codes {mine} drawn, the oracle draws {right}"
            if truth.logits.tobytes() != drawn.logits[0].tobytes():
                yield f"frame {i}, free-running: the logits are not the oracle's with the drawn codes fed back"
        elif self.exact:
            again = self._call([i], None, drawn.codes).logits
            if again is None or again.tobytes() != drawn.logits.tobytes():
                yield f"frame {i}, free-running: the logits do not follow from the drawn codes"

    def _injected(self, seeded: _Drawn) -> Iterator[str]:
        """Noise as an array: the generator's of frame 1, within a `Sampling` and alone, and zeros."""
        draws = checked_draws(self.spec, replace(_OFFICIAL, frame=8), 1)
        assert draws is not None
        noise = np.stack([draws.row(0, g, self.spec.vocab) for g in range(self.spec.passes)])[None]
        if not np.array_equal(self._call([1], replace(_OFFICIAL, seed=None, noise=noise)).codes, seeded.codes):
            yield "noise draws other codes when it is given than when it comes of a seed"
        yield from self._by_the_law("noise alone: frame 1", noise, self._call([1], noise))
        if not np.array_equal(self._call([1], noise * 0).codes, self._call([1], None).codes):
            yield "other codes with noise of zeros than greedily"

    def _together(self, free: list[_Drawn]) -> Iterator[str]:
        """Three frames at once, each with its own index and seed, against one at a time."""
        seed = _OFFICIAL.seed
        assert isinstance(seed, int)
        following = replace(_OFFICIAL, frame=7)
        own = replace(_OFFICIAL, seed=[seed, seed, seed + 1], frame=[8, 7, 8])
        batch, apart = self._call([0, 1, 0], following), self._call([1, 0, 1], own)
        for where, codes, alone in (
            ("number 0", batch.codes[0], free[0]),
            ("number 1", batch.codes[1], free[1]),
            ("number 0, a seed for each", apart.codes[0], free[1]),
            ("number 1, a seed for each", apart.codes[1], free[0]),
        ):
            if not np.array_equal(codes, alone.codes[0]):
                yield f"{where} of 3 at once: other codes drawn than alone"
        yield from self._by_the_law("3 at once", following, batch)
        yield from self._by_the_law("3 at once, a seed for each", own, apart)

    def _fails_greedily(self) -> bool:
        try:
            for forced in (None, self.golden.forced[:2]) if self.forces else (None,):
                self._predict([0, 1], None, forced, None)
        except CplabError:
            return True
        return False

    def _call(self, members: list[int], noise: Noise | None, forced: Codes | None = None) -> _Drawn:
        trace = Trace()
        codes = self._predict(members, noise, forced, trace)
        return _Drawn(codes, None if trace.logits is None else np.array(trace.logits))

    def _predict(self, members: list[int], noise: Noise | None, forced: Codes | None, trace: Trace | None) -> Codes:
        hidden, cb0 = self.golden.hidden[members], self.golden.cb0_embed[members]
        fed = None if forced is None else forced.copy()
        try:
            codes = self.predictor.predict(hidden, cb0, forced=fed, trace=trace, noise=noise)
        except BadInputError as error:
            raise (error if noise is None else _RefusedError(str(error))) from None
        return np.array(codes)
