"""A talker's stand-in for long rollouts: a few lines that listen, instead of 28 layers that need an engine.

What a rollout needs of a talker is that the next frame depends on all codes so far. The state is a unit vector; a step
permutes it, turns some signs, halves it, adds the input and makes it a unit vector again. Hidden states have the real
scale, and CB0's logits are the permuted state beside each row of CB0's table (beside the state itself, the code that
was heard would win again and again). All of it is arithmetic of `cplab.arithmetic`, so that the same codes give the
same bits everywhere. It knows no language: it says whether a loop keeps going, not how it sounds. `cplab.talker` is a
talker.
"""

from __future__ import annotations

import numpy as np

from bench.quality.truth import Float32
from cplab import arithmetic as law
from cplab.sources import synthetic
from cplab.spec import Spec
from cplab.talker import Heard

NAME = "a seeded stand-in that listens to every code and knows no language"
#: What is left of the state after a step, before the input is added.
_KEPT = np.float32(0.5)
_SCALE = np.float32(6.6)
_EPS = np.float32(1e-6)


class StandInTalker:
    """One sequence; `cplab.orchestrate.Speaks` is the contract.

    Args:
        spec: of the code predictor beside it.

    Attributes:
        codec_embedding: CB0's table, ``[vocab, talker_hidden]`` f32.
    """

    def __init__(self, spec: Spec) -> None:
        width = spec.talker_hidden
        self.codec_embedding = synthetic.cb0_embeddings(f"{synthetic.PREFIX}stand-in", spec.vocab, width)
        order, signs = (synthetic.gaussian(f"stand-in/{name}", width, 0) for name in ("order", "signs"))
        self._order = np.argsort(order, kind="stable")
        self._signs = np.where(signs < 0, np.float32(-1), np.float32(1))
        self._ones = np.ones(width, np.float32)
        self._state = np.zeros(width, np.float32)

    def prefill(self, X: Float32) -> Heard:
        """Begin with ``X [T, talker_hidden]``, T at least 1."""
        self._state = np.zeros_like(self._state)
        for x in X[:-1]:
            self.step(x)
        return self.step(X[-1])

    def step(self, x: Float32) -> Heard:
        """Go on with ``x [talker_hidden]``."""
        normed, state = np.empty_like(x), np.empty_like(x)
        law.rms_norm(x, self._ones, _EPS, normed)
        law.rms_norm(_KEPT * self._turned(self._state) + normed, self._ones, _EPS, state)
        self._state = state
        logits = np.empty(len(self.codec_embedding), np.float32)
        law.matvec(self.codec_embedding, self._turned(state), logits)
        return Heard(_SCALE * state, logits)

    def _turned(self, state: Float32) -> Float32:
        turned: Float32 = self._signs * state[self._order]
        return turned
