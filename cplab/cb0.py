"""CB0 out of the talker's logits, by the rules and in the order of the official class.

qwen-tts 0.1.1 calls its talker's ``generate`` with a repetition penalty, at least two tokens, and all special codes but
the end code suppressed; transformers applies them in this order, and then, where it samples, temperature, top_k and
top_p. What transformers draws with torch's generator is drawn here by the law of sampling
(`cplab.arithmetic_sampling`), as the code predictor's codes are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab import arithmetic_sampling as law
from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.sampling import Sampling, draws_of, following
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


def greedy(scores: Float32) -> int:
    """The code with the largest score; of equals the lowest."""
    return int(scores.argmax())


def drawn(scores: Float32, sampling: Sampling, frame: int) -> int:
    """The code that the law of sampling draws from ruled ``scores [vocab]``, those left out that are barred.

    Args:
        scores: the talker's logits as `Rules.ruled` leaves them.
        sampling: with a seed, whose noise for codebook 0 is taken; noise in its place is ``[1, 1, vocab]``.
        frame: how many came before; the generator counts on from the ``frame`` of ``sampling``.

    Raises:
        BadInputError: a parameter or noise makes no sense.
        NonFiniteLogitsError: a logit divided by the temperature is not finite.
    """
    draws = draws_of(following(sampling, frame), (1, 1, len(scores)), codebook=0)
    allowed = np.flatnonzero(scores != -np.inf)
    noise = draws.row(0, 0, len(scores))[allowed]
    top_k = min(draws.top_k, len(allowed))
    place = law.sample(scores[allowed], draws.temperature, top_k, draws.top_p, noise)
    if place < 0:
        raise NonFiniteLogitsError(frame, 0, "the talker's, of CB0")
    return int(allowed[place])
