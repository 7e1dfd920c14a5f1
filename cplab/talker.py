"""The talker, run by llama.cpp: embeddings in, and out of the same decode the hidden state and CB0's logits.

The lab does not compete here. What the loop needs of a talker is its time and what the code predictor is fed with, and
llama.cpp is what a program on a CPU would take.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cplab.cpus import allowed_cpus
from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.llama.engine import Engine, bindings, run_frame
from cplab.llama.probing import Choice, choice_for
from cplab.llama.settings import Settings
from cplab.sources import synthetic
from cplab.sources.talker_file import TalkerFile, read_talker_file

Float32 = NDArray[np.float32]

#: What llama.cpp computes without extra buffers, fused attention and halved caches: what other settings are held to.
PLAIN = Settings(False, "none", "f32")
#: Inputs of a trial of settings.
_TRIED = 8
#: Other settings round otherwise; those that are wrong are as far off as another input's states, sqrt(2) of the rms.
_WITHIN = 0.25


class Heard(NamedTuple):
    """What a decode gives for its last position.

    Attributes:
        hidden: state after the final norm, ``[width]`` f32.
        logits: of CB0, before any rule, ``[vocab]`` f32.
    """

    hidden: Float32
    logits: Float32


@dataclass(frozen=True, slots=True)
class Room:
    """How long a sequence may become.

    Attributes:
        prefill: positions that are fed at once.
        steps: positions after them, one by one.
    """

    prefill: int
    steps: int


class Talker:
    """One talker with one sequence.

    Args:
        file: its GGUF file.
        threads: of llama.cpp.
        room: of the sequence.
        settings: how to run it; default: the fastest that works here, tried once in child processes.

    Attributes:
        file: as given.
        codec_embedding: CB0's table, ``[vocab, width]`` f32.
        note: which settings were taken and why, in one line.

    Raises:
        VariantUnavailableError: llama-cpp-python is not installed.
        EngineError: llama.cpp refuses the file.
    """

    def __init__(self, file: TalkerFile, threads: int, room: Room, settings: Settings | None = None) -> None:
        bindings()
        self.file, self.threads = file, threads
        choice = Choice(settings, f"llama.cpp: {settings}") if settings is not None else talker_settings(file, threads)
        self.note = choice.note
        self.codec_embedding = file.codec_embedding()
        self._room = room
        self._engine = Engine(file.path, choice.settings, threads, room.prefill + room.steps, room.prefill)
        self._next = 0
        if (self._engine.hidden, self._engine.vocab) != (file.width, file.vocab):
            raise BadInputError(
                f"{file.path}: its keys say width {self._engine.hidden} and vocabulary {self._engine.vocab}, its "
                f"tensors {file.width} and {file.vocab}"
            )

    def prefill(self, X: Float32) -> Heard:
        """Begin a sequence with ``X [T, width]``.

        Raises:
            BadInputError: more positions than there is room for, or another width.
            EngineError: llama.cpp gave up.
            NonFiniteLogitsError: a logit is NaN or infinite.
        """
        if X.ndim != 2 or X.shape[1] != self.file.width or not 1 <= len(X) <= self._room.prefill:
            raise BadInputError(f"a prefill of {list(X.shape)}; at most [{self._room.prefill}, {self.file.width}]")
        self._engine.forget()
        self._next = 0
        return self._heard(X)

    def step(self, x: Float32) -> Heard:
        """Go on with one position, ``x [width]``.

        Raises:
            BadInputError: the sequence is full.
            EngineError: llama.cpp gave up.
            NonFiniteLogitsError: a logit is NaN or infinite.
        """
        if self._next >= self._engine.positions:
            raise BadInputError(f"the talker's sequence is full at {self._next} positions")
        return self._heard(x[None])

    def close(self) -> None:
        """Give the memory back."""
        self._engine.close()

    def _heard(self, X: Float32) -> Heard:
        hidden = self._engine.run(X, self._next)
        self._next += len(X)
        logits = self._engine.logits()
        if not np.isfinite(logits).all():
            frame = max(0, self._next - self._room.prefill)
            raise NonFiniteLogitsError(frame, 0, f"CB0's, from {self.file.path}")
        return Heard(hidden, logits)


def talker_settings(file: TalkerFile, threads: int) -> Choice:
    """The fastest settings of llama.cpp for a talker's single steps, tried once and kept.

    Raises:
        EngineError: llama.cpp gives no answer with any.
    """
    about = file.path.stat()
    facts = (str(file.path.resolve()), about.st_size, about.st_mtime_ns)
    identity = f"talker-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"

    def write_frame(path: Path) -> float:
        X = synthetic.cb0_embeddings(f"{synthetic.PREFIX}talker-trial", _TRIED, file.width)
        engine = Engine(file.path, PLAIN, min(threads, allowed_cpus()), _TRIED)
        try:
            states = run_frame(engine, X, recompute=False)
        finally:
            engine.close()
        np.savez(path, X=X, states=states)
        return _WITHIN * float(np.sqrt(np.mean(np.square(states, dtype=np.float64))))

    return choice_for(file.path, file.kind, threads, write_frame, identity=identity)


def talker_file(path_or_name: str) -> TalkerFile:
    """A talker from a GGUF file, or from a seed where the name starts with ``synthetic-talker:``.

    Raises:
        UnknownModelError: no such seeded talker.
        UnreadableModelError: the file holds no talker.
    """
    from cplab.sources import synthetic_talker

    if path_or_name.startswith(synthetic_talker.PREFIX):
        return read_talker_file(synthetic_talker.file_of(path_or_name))
    return read_talker_file(Path(path_or_name).expanduser())
