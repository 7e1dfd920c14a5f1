"""A code predictor that is somebody else's engine."""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import require_process
from cplab.errors import BadInputError, EngineError, NonFiniteLogitsError
from cplab.external.library import Library
from cplab.external.model_file import engine_file
from cplab.external.naming import ExternalName
from cplab.external.program import Program
from cplab.formats import format_named
from cplab.model import Model
from cplab.sampling import Draws, Noise, checked_draws, choose
from cplab.variant import Trace, WeightStream, checked_inputs

Array = NDArray[np.float32]
Codes = NDArray[np.int32]


class Engine(Protocol):
    """A loaded model of somebody's: a `Library` or a `Program`."""

    takes_forced: bool
    described: str

    def run(self, hidden: Array, cb0_embed: Array, forced: Codes | None, *, logits: bool) -> tuple[Codes, Array | None]:
        """Frames ``hidden [B, talker_hidden]`` -> codes ``[B, groups-1]``, and logits where they are wanted."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class ExternalPredictor:
    """See `cplab.variant.CodePredictor` for the contract.

    Args:
        external: which engine, with its options.
        model: the weights; it is given a file of them.
        threads: passed on to it.

    Attributes:
        takes_forced: whether codes can be fed back to it, and logits be had.
        engine_note: what it says of itself, and what it was given.

    Raises:
        EngineError: it cannot be loaded or started, refuses the model, or its tier needs logits that it has not.
    """

    def __init__(self, external: ExternalName, model: Model, threads: int) -> None:
        if threads < 1:
            raise BadInputError(f"threads is {threads}; at least 1 is wanted")
        self._pid, self._name, self.model = os.getpid(), external.name, model
        spec = model.spec
        file, what = engine_file(model, external.file)
        library = external.kind == "library"
        self._engine: Engine = (
            Library(external.name, external.words[0], file, threads, spec)
            if library
            else Program(external.name, external.words, file, threads, spec)
        )
        self.takes_forced = self._engine.takes_forced
        lacking = "it has no cp_predict_logits" if library else "it says that it gives no logits"
        if external.tier != "codes" and not self.takes_forced:
            self.close()
            raise EngineError(
                f"{external.name}: tier {external.tier} compares logits and {lacking}; tier=codes does without"
            )
        self._refusal = f"{external.name}: {lacking}, and so takes no forced codes and no noise"
        judged = "" if self.takes_forced else f"{lacking}: judged by its free-running codes only"
        self.engine_note = "; ".join(part for part in (self._engine.described, f"given {what}", judged) if part)
        self.passes_per_frame = spec.passes
        self.bytes_per_frame = _bytes_per_frame(model, external.format) if external.format else 0

    def predict(
        self,
        hidden: Array,
        cb0_embed: Array,
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`; a trace gets no pass times.

        Codes are drawn from the engine's logits, not by it: a sampled frame takes as many calls as it has passes.

        Raises:
            BadInputError: also where ``forced`` or ``noise`` is given to an engine that takes no forced codes.
            EngineError: it failed; the message holds what it said.
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.model.spec, noise, len(hidden))
        require_process(self._pid)
        if (forced is not None or draws is not None) and not self.takes_forced:
            raise BadInputError(self._refusal)
        if draws is None:
            wanted = self.takes_forced and (trace is not None or forced is not None)
            codes, logits = self._run(hidden, cb0_embed, forced, logits=wanted)
        else:
            codes, logits = self._drawn(hidden, cb0_embed, forced, draws)
        if trace is not None:
            trace.logits, trace.pass_ns = logits, np.empty(0, np.int64)
        return codes

    def _run(
        self, hidden: Array, cb0_embed: Array, forced: Codes | None, *, logits: bool
    ) -> tuple[Codes, Array | None]:
        codes, scores = self._engine.run(hidden, cb0_embed, forced, logits=logits)
        if scores is not None:
            bad = np.argwhere(~np.isfinite(scores).all(-1))
            if len(bad):
                raise NonFiniteLogitsError(int(bad[0, 0]), int(bad[0, 1]), self._name)
        return codes, scores

    def _drawn(self, hidden: Array, cb0_embed: Array, forced: Codes | None, draws: Draws) -> tuple[Codes, Array | None]:
        codes = np.zeros((len(hidden), self.model.spec.passes), np.int32)
        fed = codes if forced is None else forced
        logits: Array | None = None
        for g in range(self.model.spec.passes):
            if logits is None or forced is None:
                _, logits = self._run(hidden, cb0_embed, fed, logits=True)
            assert logits is not None
            for b in range(len(hidden)):
                codes[b, g] = choose(logits[b, g], draws, b, g)
                if codes[b, g] < 0:
                    raise NonFiniteLogitsError(b, g, self._name)
        return codes, logits

    def streams(self) -> list[WeightStream]:
        """None: the weights lie in the engine's own memory."""
        return []

    def close(self) -> None:
        """Give the engine back; calling it again does nothing."""
        self._engine.close()


def _bytes_per_frame(model: Model, held: str) -> int:
    """Bytes of the matrices that the passes of a frame read, held in a format."""
    spec, kind = model.spec, format_named(held)

    def size(name: str) -> int:
        return int(np.prod(kind.stored_shape(spec.shapes()[name]))) * kind.storage.itemsize

    body = [n for n in spec.shapes() if n.endswith("_proj.weight") or n == "small_to_mtp_projection.weight"]
    return spec.passes * (sum(size(name) for name in body) + size("lm_head.0.weight"))
