"""CB0 out of the talker's logits, by the rules and in the order of the official class.

qwen-tts 0.1.1 calls its talker's ``generate`` with a repetition penalty, at least two tokens, and all special codes but
the end code suppressed; transformers applies them in this order, and then, where it samples, temperature, top_k and
top_p. What transformers draws with torch's generator is drawn here with noise that is an input: ``argmax(kept +
noise)`` of Gumbel noise has the same distribution.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError
from cplab.sources.talker_file import SPECIAL_CODES

Float32 = NDArray[np.float32]

#: The end code's place among the special codes: 2150 beside codebooks of 2048.
_END = 102
_LEAST = 2
PENALTY = 1.05


@dataclass(frozen=True, slots=True)
class Rules:
    """What is done to CB0's logits before one is chosen.

    Attributes:
        end: the end code.
        suppressed: codes that are never chosen.
        least: how many frames there are before the end code may be chosen.
        penalty: what chosen codes are divided by (or multiplied with, where negative); 1 for none.
    """

    end: int
    suppressed: NDArray[np.int64]
    least: int = _LEAST
    penalty: float = 1.0

    @classmethod
    def of_vocabulary(cls, vocab: int, penalty: float = 1.0) -> Rules:
        """The official rules for a talker of ``vocab`` codes, of which the last 1024 are special."""
        end = vocab - SPECIAL_CODES + _END
        special = np.arange(vocab - SPECIAL_CODES, vocab)
        return cls(end, special[special != end], penalty=penalty)

    @classmethod
    def recorded(cls, rules: Mapping[str, Any], vocab: int) -> Rules:
        """The rules that a talker dump has taken down (`cplab.talker_dump.TalkerDump.rules`).

        Raises:
            BadInputError: one of them is missing or makes no sense.
        """
        try:
            suppressed = np.array(sorted(rules["suppress_tokens"]), np.int64)
            told = cls(
                int(rules["eos_token_id"]), suppressed, int(rules["min_new_tokens"]), float(rules["repetition_penalty"])
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"the dump's generation rules cannot be used ({error!r}); make it again") from error
        if not 0 <= told.end < vocab or (suppressed.size and not 0 <= suppressed[0] <= suppressed[-1] < vocab):
            raise BadInputError(f"the dump's generation rules name codes beyond the talker's {vocab}; make it again")
        return told

    def ruled(self, logits: Float32, spoken: Collection[int]) -> Float32:
        """``logits [vocab]`` with the rules applied, after the frames whose CB0s were ``spoken``; -inf where barred."""
        scores = logits.copy()
        if self.penalty != 1.0 and spoken:
            codes, penalty = np.fromiter(set(spoken), np.int64), np.float32(self.penalty)
            chosen = scores[codes]
            scores[codes] = np.where(chosen < 0, chosen * penalty, chosen / penalty)
        if len(spoken) < self.least:
            scores[self.end] = -np.inf
        scores[self.suppressed] = -np.inf
        return scores


@dataclass(frozen=True, slots=True)
class Sampling:
    """How CB0 is drawn; the defaults are the official ones.

    Attributes:
        seed: of the noise, where none is given.
        noise: Gumbel noise, ``[frames, vocab]`` f32.
        temperature: what logits are divided by.
        top_k: how many of the largest are kept; of equal ones those of lower index. 0 keeps all.
        top_p: the fewest of the most probable are kept that reach this sum.
    """

    seed: int = 0
    noise: Float32 | None = None
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not self.temperature > 0 or self.top_k < 0 or not 0 < self.top_p <= 1:
            raise BadInputError(
                f"temperature {self.temperature:g}, top_k {self.top_k}, top_p {self.top_p:g}: "
                "a positive temperature, top_k of at least 0 and top_p in (0, 1] are wanted"
            )

    def noise_of(self, frame: int, vocab: int) -> Float32:
        """A frame's noise, ``[vocab]`` f32.

        Raises:
            BadInputError: the noise that was given has another width, or no such frame.
        """
        if self.noise is None:
            return gumbel(self.seed, frame, vocab)
        if self.noise.ndim != 2 or self.noise.shape[1] != vocab or frame >= len(self.noise):
            raise BadInputError(
                f"noise of shape {list(self.noise.shape)}; frame {frame} of [frames, {vocab}] is wanted"
            )
        row: Float32 = self.noise[frame]
        return row


def greedy(scores: Float32) -> int:
    """The code with the largest score; of equals the lowest."""
    return int(scores.argmax())


def drawn(scores: Float32, sampling: Sampling, frame: int) -> int:
    """A code drawn from ruled ``scores [vocab]``."""
    warm = scores / np.float32(sampling.temperature)
    order = np.argsort(-warm, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    if sampling.top_p < 1:
        weights = np.exp(warm[order].astype(np.float64) - float(warm[order[0]]))
        before = np.cumsum(weights) - weights
        order = order[before < sampling.top_p * weights.sum()]
    kept = np.full(len(warm), -np.inf, np.float32)
    kept[order] = warm[order]
    return greedy(kept + sampling.noise_of(frame, len(warm)))


def gumbel(seed: int, frame: int, count: int) -> Float32:
    """Gumbel noise that depends on (seed, frame, index) only, ``[count]`` f32."""
    bits = np.random.Philox(key=seed, counter=[0, 0, frame, 0]).random_raw(count)
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    noise: Float32 = (-np.log(-np.log(uniform))).astype(np.float32)
    return noise
