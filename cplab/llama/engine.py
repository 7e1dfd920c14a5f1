"""One sequence through llama.cpp: embeddings in, hidden states after the final norm out."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import EngineError, VariantUnavailableError
from cplab.llama.buffers import repacked_matrices
from cplab.llama.settings import Settings

Array = NDArray[np.float32]

INSTALL = "python -m pip install 'cplab[llama]'"
#: ``GGML_TYPE_F32`` and ``GGML_TYPE_F16``.
_CACHE_TYPES = {"f32": 0, "f16": 1}
_NO_POOLING = 0
_ERROR = 4
_said: list[str] = []


@cache
def bindings() -> Any:
    """llama-cpp-python's low-level module, silent from here on.

    Raises:
        VariantUnavailableError: it is not installed, or its library cannot be loaded.
    """
    try:
        import llama_cpp.llama_cpp as found
    except ImportError as error:
        raise VariantUnavailableError(
            f"llama-cpp-python is not installed: {INSTALL} (it compiles for minutes and needs a C++ compiler)"
        ) from error
    except (OSError, RuntimeError) as error:
        raise VariantUnavailableError(f"llama-cpp-python cannot be loaded ({error}): {INSTALL}") from error

    def note(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR:
            _said.append(text.decode(errors="replace").strip())
            del _said[:-3]

    _keep.append(found.llama_log_callback(note))
    found.llama_log_set(_keep[-1], ctypes.c_void_p(0))
    found.llama_backend_init()
    return found


#: Callbacks that llama.cpp may call as long as the process lives.
_keep: list[Any] = []


@cache
def version() -> str:
    """Which llama.cpp, and what its build says of the CPU."""
    import llama_cpp

    system = " ".join(bindings().llama_print_system_info().decode().split())
    return f"llama-cpp-python {llama_cpp.__version__}; {system}"


class Engine:
    """A file loaded into llama.cpp, with one sequence of at most ``positions`` positions.

    Args:
        path: a ``qwen3`` file (`cplab.llama.derived`).
        settings: how to run it.
        threads: for one token and for several alike.
        positions: the longest sequence.
        at_once: how many of them one `run` takes at most; default: all.

    Raises:
        EngineError: llama.cpp refuses the file or the settings.
    """

    def __init__(
        self, path: Path, settings: Settings, threads: int, positions: int, at_once: int | None = None
    ) -> None:
        self._model: Any = None
        self._context: Any = None
        self._batch: Any = None
        self.api = bindings()
        self.positions, self.at_once = positions, at_once or positions
        self._model = self._loaded(path, settings)
        self.hidden = int(self.api.llama_model_n_embd(self._model))
        self._context = self._made(settings, threads)
        self._memory = self.api.llama_get_memory(self._context)
        self.vocab = int(self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self._model)))
        self._batch = self.api.llama_batch_init(self.at_once, self.hidden, 1)
        self._input = np.ctypeslib.as_array(self._batch.embd, (self.at_once, self.hidden))
        for i in range(self.at_once):
            self._batch.n_seq_id[i], self._batch.seq_id[i][0] = 1, 0
            self._batch.logits[i] = 1  # where embeddings are wanted llama.cpp gives every token's

    def forget(self) -> None:
        """Begin a new sequence."""
        self.api.llama_memory_clear(self._memory, False)

    def run(self, X: Array, first: int) -> Array:
        """Put ``X [T, hidden]`` at positions ``first ..`` of the sequence; the last one's hidden state, ``[hidden]``.

        Raises:
            EngineError: llama.cpp gave up.
        """
        batch = self._batch
        batch.n_tokens = len(X)
        self._input[: len(X)] = X
        for i in range(len(X)):
            batch.pos[i] = first + i
        status = self.api.llama_decode(self._context, batch)
        state = self.api.llama_get_embeddings_ith(self._context, -1) if status == 0 else None
        if not state:
            raise EngineError(f"llama_decode returned {status} at position {first}{_told()}")
        return np.ctypeslib.as_array(state, (self.hidden,)).copy()

    def logits(self) -> Array:
        """What the file's own head made of the state that `run` gave last, ``[vocab]``.

        Raises:
            EngineError: llama.cpp has none.
        """
        row = self.api.llama_get_logits_ith(self._context, -1)
        if not row:
            raise EngineError(f"llama.cpp has no logits{_told()}")
        return np.ctypeslib.as_array(row, (self.vocab,)).copy()

    def close(self) -> None:
        """Give everything back; calling it again does nothing."""
        batch, context, model = self._batch, self._context, self._model
        self._batch = self._context = self._model = None
        if batch is not None:
            self.api.llama_batch_free(batch)
        if context is not None:
            self.api.llama_free(context)
        if model is not None:
            self.api.llama_model_free(model)

    def __del__(self) -> None:
        self.close()

    def _loaded(self, path: Path, settings: Settings) -> Any:
        parameters = self.api.llama_model_default_params()
        parameters.n_gpu_layers = 0
        parameters.use_extra_bufts = settings.buffers == "all"
        if settings.buffers == "repack":
            overrides = repacked_matrices()
            parameters.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
        model = self.api.llama_model_load_from_file(str(path).encode(), parameters)
        if not model:
            raise EngineError(f"{path}: llama.cpp cannot load it{_told()}")
        return model

    def _made(self, settings: Settings, threads: int) -> Any:
        parameters = self.api.llama_context_default_params()
        parameters.n_ctx = self.positions
        parameters.n_batch = parameters.n_ubatch = self.at_once
        parameters.n_seq_max = 1
        parameters.n_threads = parameters.n_threads_batch = threads
        parameters.embeddings, parameters.pooling_type = True, _NO_POOLING
        parameters.flash_attn_type = int(settings.flash)
        parameters.type_k = parameters.type_v = _CACHE_TYPES[settings.cache]
        parameters.offload_kqv = parameters.op_offload = False
        parameters.no_perf = True
        context = self.api.llama_init_from_model(self._model, parameters)
        if not context:
            raise EngineError(f"llama.cpp refuses {settings}{_told()}")
        return context


def run_frame(engine: Engine, X: Array, recompute: bool) -> Array:
    """A teacher-forced frame: the hidden state that each pass ends with, ``[passes, hidden]``.

    Args:
        engine: what runs it.
        X: inputs of all positions, ``[positions, hidden]``.
        recompute: run positions 0..g+1 anew in pass g instead of keeping keys and values.
    """
    states = []
    engine.forget()
    for g in range(len(X) - 1):
        first = 0 if recompute or g == 0 else g + 1
        if recompute:
            engine.forget()
        states.append(engine.run(X[first : g + 2], first))
    return np.stack(states)


def _told() -> str:
    return f": {' '.join(_said)}" if _said else ""
