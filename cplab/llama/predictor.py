"""The code predictor with llama.cpp in the middle: the lab's embeddings, its layers, the lab's heads."""

from __future__ import annotations

import os
import time

import numpy as np
from numpy.typing import NDArray

from cplab.decoder import require_process, require_threads
from cplab.errors import NonFiniteLogitsError
from cplab.llama.derived import derived_file, layer_bytes
from cplab.llama.engine import Engine, bindings
from cplab.llama.heads import Matrix
from cplab.llama.probing import chosen_settings
from cplab.model import Model
from cplab.sampling import Noise, checked_draws, choose
from cplab.tuning import found_distance, tuning_key
from cplab.variant import Trace, WeightStream, checked_inputs

Array = NDArray[np.float32]


class LlamaPredictor:
    """See `cplab.variant.CodePredictor` for the contract.

    Args:
        model: the weights.
        threads: of llama.cpp and of the heads alike.
        kind: how llama.cpp holds the layers: a key of `cplab.llama.settings.TIERS`.
        recompute: run all positions through the layers in every pass.

    Attributes:
        head_format: how heads and projection are held.
        engine_note: which settings were taken and why, in one line.

    Raises:
        VariantUnavailableError: llama-cpp-python is not installed.
        EngineError: llama.cpp gives no answer with any settings.
    """

    def __init__(self, model: Model, threads: int, *, kind: str, recompute: bool) -> None:
        bindings()
        require_threads(threads)
        spec = model.spec
        self._pid = os.getpid()
        self.model, self.spec, self.recompute = model, spec, recompute
        self.head_format = kind
        file = derived_file(model, kind)
        choice = chosen_settings(model, kind, file, threads, recompute=recompute)
        self.engine_note = f"{choice.note}; heads {self.head_format.upper()} by the lab's kernels"
        self._engine = Engine(file, choice.settings, threads, spec.positions)

        ahead_bytes = found_distance(tuning_key(self.head_format, threads, spec))  # as the lab's own decoder takes it

        def matrix(name: str) -> Matrix:
            return Matrix(model.tensors[name], self.head_format, threads, ahead_bytes)

        self._heads = [matrix(f"lm_head.{g}.weight") for g in range(spec.passes)]
        self._projection = matrix("small_to_mtp_projection.weight") if spec.projected else None
        bias = "small_to_mtp_projection.bias"
        self._bias = model.f32(bias) if spec.projected else np.zeros(spec.hidden, np.float32)
        self._tables = [model.tensors[f"model.codec_embedding.{g}.weight"] for g in range(spec.passes)]
        self.passes_per_frame = spec.passes
        beside = self._heads[0].nbytes + (self._projection.nbytes if self._projection else 0)
        self.bytes_per_frame = spec.passes * (layer_bytes(model, kind) + beside)

    def predict(
        self,
        hidden: Array,
        cb0_embed: Array,
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`; frames go one after another.

        Raises:
            EngineError: llama.cpp gave up.
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced)
        draws = checked_draws(self.spec, noise, len(hidden))
        require_process(self._pid)
        spec = self.spec
        codes = np.empty((len(hidden), spec.passes), np.int32)
        logits = np.empty((len(hidden), spec.passes, spec.vocab), np.float32)
        pass_ns = np.zeros(spec.passes, np.int64)
        for b in range(len(hidden)):
            X = np.empty((spec.positions, spec.hidden), np.float32)
            fed = np.stack([hidden[b], cb0_embed[b]])
            self._engine.forget()
            for g in range(spec.passes):
                started = time.perf_counter_ns()
                X[g + 2 - len(fed) : g + 2] = self._projected(fed)
                logits[b, g] = self._heads[g].times(self._state(X, g)[None])[0]
                codes[b, g] = choose(logits[b, g], draws, b, g)
                if codes[b, g] < 0:
                    count = np.count_nonzero(~np.isfinite(logits[b, g]))
                    raise NonFiniteLogitsError(b, g, f"{count} of {spec.vocab}, from llama.cpp's hidden state")
                code = int(codes[b, g] if forced is None else forced[b, g])
                fed = self._tables[g].format.unpack(self._tables[g].data[code : code + 1])
                pass_ns[g] += time.perf_counter_ns() - started
        if trace is not None:
            trace.logits, trace.pass_ns = logits, pass_ns
        return codes

    def streams(self) -> list[WeightStream]:
        """None: the weights lie in llama.cpp's own memory."""
        return []

    def _state(self, X: Array, g: int) -> Array:
        """Hidden state of position g + 1, ``[hidden]``."""
        if self.recompute:
            self._engine.forget()
            return self._engine.run(X[: g + 2], 0)
        first = 0 if g == 0 else g + 1
        return self._engine.run(X[first : g + 2], first)

    def _projected(self, raw: Array) -> Array:
        if self._projection is None:
            return raw
        y: Array = self._projection.times(raw) + self._bias
        return y
