"""Engines of reduced precision made of the naive implementation, right and wrong in one way each."""

from __future__ import annotations

import numpy as np

from cplab.errors import CplabError, NonFiniteLogitsError
from cplab.naive import Naive
from cplab.variant import checked_inputs


class NaiveEngine:
    """The naive implementation as a predictor; ``error`` is added to its logits as that many rms of its own error."""

    def __init__(self, model, kind, *, error=0.0, raises=None):
        self.model, self.error, self.raises = model, error, raises
        self.naive, self.exact = Naive(model, kind), Naive(model, "f32")
        self.passes_per_frame, self.bytes_per_frame = model.spec.passes, 1

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced, noise)
        if self.raises:
            raise self.raises
        spec = self.model.spec
        logits = np.empty((len(hidden), spec.passes, spec.vocab), np.float32)
        codes = np.zeros((len(hidden), spec.passes), np.int32)
        for b in range(len(hidden)):
            one = slice(b, b + 1)
            for g in range(spec.passes):
                fed = codes[one] if forced is None else forced[one]
                logits[one] = self.logits(hidden[one], cb0_embed[one], fed)
                if not np.isfinite(logits[b, g]).all():
                    raise NonFiniteLogitsError(b, g)
                codes[b, g] = logits[b, g].argmax()
        if trace is not None:
            trace.logits = logits
        return codes

    def logits(self, *arguments):
        naive = self.naive.scored(*arguments)
        return naive + np.float32(self.error) * (naive - self.exact.scored(*arguments))

    def streams(self):
        return []


class Refusing(NaiveEngine):
    """An engine that gives up."""

    def __init__(self, model, kind):
        super().__init__(model, kind, raises=CplabError("the engine gave up"))
