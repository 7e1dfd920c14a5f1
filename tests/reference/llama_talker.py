"""A language model through llama.cpp's C interface: embeddings in, logits and hidden states of every position out."""

from __future__ import annotations

import os

import numpy as np

from cplab.llama.engine import bindings


class LlamaTalker:
    """A GGUF file of llama.cpp's ``qwen3``, on the CPU, keys and values in float32, attention not fused."""

    def __init__(self, path, context=256, threads=2):
        # The process has one log callback; one of our own would be called after this object is gone.
        self.api = llama_cpp = bindings()
        about = llama_cpp.llama_model_default_params()
        about.n_gpu_layers = 0
        about.use_extra_bufts = False  # repacking, and AMX with it, which faults on machines that only list it
        self.model = llama_cpp.llama_model_load_from_file(os.fsencode(path), about)
        assert self.model, f"llama.cpp does not load {path}"
        how = llama_cpp.llama_context_default_params()
        how.n_ctx = how.n_batch = how.n_ubatch = context
        how.n_threads = how.n_threads_batch = threads
        how.embeddings = True
        how.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_NONE
        how.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32
        how.offload_kqv = how.op_offload = False
        self.context = llama_cpp.llama_init_from_model(self.model, how)
        assert self.context, f"llama.cpp makes no context for {path}"
        self.width = llama_cpp.llama_model_n_embd(self.model)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.position = 0

    def feed(self, embeddings):
        """The next inputs ``[T, H]`` f32 -> hidden states after the final norm ``[T, H]``, logits ``[T, V]``."""
        api, count = self.api, len(embeddings)
        batch = api.llama_batch_init(count, self.width, 1)
        try:
            batch.n_tokens = count
            np.ctypeslib.as_array(batch.embd, (count, self.width))[:] = embeddings
            for k in range(count):
                batch.pos[k], batch.n_seq_id[k], batch.seq_id[k][0], batch.logits[k] = self.position + k, 1, 0, 1
            assert api.llama_decode(self.context, batch) == 0
        finally:
            api.llama_batch_free(batch)
        self.position += count
        hidden = [self._row(api.llama_get_embeddings_ith, k, self.width) for k in range(count)]
        logits = [self._row(api.llama_get_logits_ith, k, self.vocab) for k in range(count)]
        return np.stack(hidden), np.stack(logits)

    def _row(self, getting, k, size):
        return np.ctypeslib.as_array(getting(self.context, k), (size,)).copy()

    def close(self):
        """Give the memory back."""
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)
