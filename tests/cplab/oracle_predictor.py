"""The oracle as a variant: slow, right, and in the arithmetic that it is asked for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cplab.oracle_quantised import oracle_for
from cplab.sampling import checked_draws
from cplab.variant import checked_inputs


class OraclePredictor:
    """See `cplab.variant.CodePredictor`. Its thread is there before a caller can change the float mode."""

    bytes_per_frame = 0

    def __init__(self, model, arithmetic="f32"):
        self.model, self.oracle = model, oracle_for(model, arithmetic)
        self.passes_per_frame = model.spec.passes
        self.thread = ThreadPoolExecutor(1)
        self.thread.submit(int).result()

    def predict(self, hidden, cb0_embed, *, forced=None, trace=None, noise=None):
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.model.spec, noise, len(hidden))
        drawn = [None if draws is None else draws[b : b + 1] for b in range(len(hidden))]
        fed = [None] * len(hidden) if forced is None else list(forced)
        frames = list(self.thread.map(self.oracle.frame, hidden, cb0_embed, fed, drawn))
        if trace is not None:
            trace.logits = np.stack([frame.logits for frame in frames])
        return np.stack([frame.codes for frame in frames])

    def streams(self):
        return []
