"""The talker of a rollout: the stand-in, or a real one in llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from bench.quality.standin_talker import NAME, StandInTalker
from cplab.cb0 import Rules
from cplab.orchestrate import SEEDED_POSITIONS, Speaks
from cplab.sources.talker_file import SPECIAL_CODES
from cplab.spec import Spec


@contextmanager
def rollout_talker(name: str, spec: Spec, threads: int, frames: int) -> Iterator[tuple[Speaks, Rules, str]]:
    """A talker, CB0's rules and what to call it. No special code is ever chosen, the end code among them.

    Args:
        name: a GGUF file or ``synthetic-talker:0.6b``; "" for the stand-in.
        spec: of the code predictor beside it.
        threads: of llama.cpp.
        frames: how many steps it will be asked for.

    Raises:
        VariantUnavailableError: llama-cpp-python is not installed.
        BadInputError, EngineError, UnknownModelError, UnreadableModelError: of the talker's file.
    """
    if not name:
        nothing = Rules(end=spec.vocab, suppressed=np.empty(0, np.int64), least=0)
        yield StandInTalker(spec), nothing, NAME
        return
    from cplab.talker import Room, Talker, talker_file

    file = talker_file(name)
    file.must_fit(spec)
    talker = Talker(file, threads, Room(SEEDED_POSITIONS, frames))
    special = np.arange(file.vocab - SPECIAL_CODES, file.vocab)
    try:
        yield talker, Rules(end=file.vocab, suppressed=special, least=0), f"{name} in llama.cpp"
    finally:
        talker.close()
